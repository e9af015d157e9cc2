"""The sockets to publishers, and who is called when something comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import zmq

from epp.kvevents.follower.source import Source
from epp.kvevents.follower.stream import Stream
from epp.kvevents.orders import Wire

MOST_MESSAGE_BYTES = 16 << 20
"""A batch of a million removed blocks, or two million tokens, has as many."""
MOST_QUEUED = 10_000
"""Batches of one publisher; of more, the publisher drops some, which is a gap."""
ASKS = 3
"""Replays that what a publisher sends may lead to, in the time after which a failed one is tried again."""


class Line:
    """One publisher."""

    def __init__(self, source: Source, wire: Wire, stream: Stream) -> None:
        self.source = source
        self.wire = wire
        self.stream = stream
        self.events: zmq.Socket[bytes] | None = None
        self.monitor: zmq.Socket[bytes] | None = None
        self.dealer: zmq.Socket[bytes] | None = None
        """Of the replay under way."""
        self.asked_at = self.heard_at = 0.0
        self.recent: deque[float] = deque(maxlen=ASKS)
        """When replays were asked for because of what the publisher had sent."""
        self.failures = 0
        """Replays in a row."""
        self.again_at = 0.0
        """When one is tried again."""
        self.vain = 0
        """How often all was asked for again since it was last known."""


Deal: TypeAlias = Callable[[Line], None]


class Watching:
    """Which sockets are waited for. Files can be, too."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        most = self.context.get(zmq.SOCKET_LIMIT)
        self.context.set(zmq.MAX_SOCKETS, most)  # two for each publisher; the default are 1,023
        self.poller = zmq.Poller()
        self._of_socket: dict[object, tuple[Deal, Line]] = {}

    def watch(self, socket: zmq.Socket[bytes], deal: Deal, line: Line) -> None:
        """Call ``deal(line)`` when something comes."""
        self._of_socket[socket] = (deal, line)
        self.poller.register(socket, zmq.POLLIN)

    def close(self, socket: zmq.Socket[bytes]) -> None:
        """Wait for it no more, and let go of it."""
        if self._of_socket.pop(socket, None) is not None:
            self.poller.unregister(socket)
        socket.close(0)

    def wait(self, timeout_s: float) -> set[object]:
        """Deal with what comes within ``timeout_s``; returns the sockets and files that nobody deals with here."""
        rest: set[object] = set()
        for socket, _ in self.poller.poll(round(timeout_s * 1000)):
            known = self._of_socket.get(socket)
            if known is not None:
                known[0](known[1])
            elif isinstance(socket, int) or not socket.closed:
                rest.add(socket)
        return rest

    def subscription(self) -> zmq.Socket[bytes]:
        """A SUB socket for everything."""
        socket = self.context.socket(zmq.SUB)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.RCVHWM, MOST_QUEUED)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_MESSAGE_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5000)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 10_000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 30_000)
        socket.setsockopt(zmq.LINGER, 0)
        socket.subscribe(b"")
        return socket

    def question(self) -> zmq.Socket[bytes]:
        """A DEALER socket."""
        socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_MESSAGE_BYTES)
        return socket


def received(socket: zmq.Socket[bytes] | None) -> list[bytes] | None:
    """The next message; None when there is none."""
    if socket is None or socket.closed:
        return None
    try:
        return socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
