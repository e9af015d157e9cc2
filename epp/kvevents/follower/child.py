"""The follower process: commands on standard input, orders on standard output; it exits when either closes."""

from __future__ import annotations

import os
import resource
import signal
import sys

import msgspec
from zmq import POLLIN

from epp.kvevents.follower.subscriber import Subscriber
from epp.kvevents.orders import LENGTH_BYTES, Command, FollowerMessage, Start, framed

READ_BYTES = 1 << 16


class Gone(Exception):
    """Raised when the picker has closed the command pipe."""


class Commands:
    """Decodes the commands that arrive through a pipe."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._buffer = b""
        self._decode = msgspec.msgpack.Decoder(Command).decode

    def read(self) -> list[Command]:
        """Return the commands that are complete, after waiting for bytes.

        Raises: Gone, at the end of the pipe.
        """
        data = os.read(self._file, READ_BYTES)
        if not data:
            raise Gone
        self._buffer += data
        found: list[Command] = []
        while len(self._buffer) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
            if len(self._buffer) < end:
                break
            found.append(self._decode(self._buffer[LENGTH_BYTES:end]))
            self._buffer = self._buffer[end:]
        return found


def run(commands_in: int, orders_out: int) -> None:
    """Follow the engines until the picker is gone."""
    commands = Commands(commands_in)

    def send(orders: list[FollowerMessage]) -> None:
        left = memoryview(framed(orders))
        while left:
            left = left[os.write(orders_out, left) :]

    first: list[Command] = []
    while not first:
        first = commands.read()
    start, *rest = first
    if not isinstance(start, Start):
        raise TypeError(f"the first command is {start!r}")
    subscriber = Subscriber(start, send)
    subscriber.sockets.poller.register(commands_in, POLLIN)
    for command in rest:
        subscriber.command(command)
    while True:
        if commands_in in subscriber.step():
            for command in commands.read():
                subscriber.command(command)


def main() -> int:
    """Run the follower process and return its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the picker gets the signal too, and then closes the pipe
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # about five files per publisher
    orders_out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not corrupt the orders
    try:
        run(sys.stdin.fileno(), orders_out)
    except (Gone, BrokenPipeError):
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
