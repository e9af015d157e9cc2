"""The sockets to publishers, and the callbacks for what arrives on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import zmq

from epp.kvevents.follower.source import Source
from epp.kvevents.follower.stream import Stream
from epp.kvevents.orders import Wire

MOST_MESSAGE_BYTES = 16 << 20
"""The largest message that is accepted. A batch of a million removed blocks, or of two million tokens, is this large.
"""
MOST_QUEUED = 10_000
"""Maximum number of batches queued per publisher. Beyond that, the publisher drops batches, which is a gap."""
MOST_TRIGGERED = 3
"""Maximum number of replays that one publisher's messages may trigger within ``AGAIN_S``."""


class Connection:
    """The connection to one publisher, and the state of its replays."""

    def __init__(self, source: Source, wire: Wire, stream: Stream) -> None:
        self.source = source
        self.wire = wire
        self.stream = stream
        self.events: zmq.Socket[bytes] | None = None
        self.monitor: zmq.Socket[bytes] | None = None
        self.dealer: zmq.Socket[bytes] | None = None
        """The socket of the replay under way."""
        self.requested_at = self.received_at = 0.0
        self.recent: deque[float] = deque(maxlen=MOST_TRIGGERED)
        """The times of the last replays that were triggered by the publisher's messages."""
        self.failures = 0
        """How many replays in a row have failed."""
        self.again_at = 0.0
        """The earliest time at which a replay is tried again."""
        self.whole_replays = 0
        """How often the whole buffer has been requested again since the stream was last complete."""


Handler: TypeAlias = Callable[[Connection], None]


class SocketPoller:
    """The sockets to wait for, each with its callback. Plain files can be registered with the poller, too."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        most = self.context.get(zmq.SOCKET_LIMIT)
        self.context.set(zmq.MAX_SOCKETS, most)  # two per publisher; ZeroMQ's default is 1,023
        self.poller = zmq.Poller()
        self._of_socket: dict[object, tuple[Handler, Connection]] = {}

    def watch(self, socket: zmq.Socket[bytes], handler: Handler, connection: Connection) -> None:
        """Call ``deal(line)`` whenever something arrives on ``socket``."""
        self._of_socket[socket] = (handler, connection)
        self.poller.register(socket, zmq.POLLIN)

    def close(self, socket: zmq.Socket[bytes]) -> None:
        """Stop waiting for ``socket``, and close it."""
        if self._of_socket.pop(socket, None) is not None:
            self.poller.unregister(socket)
        socket.close(0)

    def wait(self, timeout_s: float) -> set[object]:
        """Call the callbacks of what arrives within ``timeout_s``; return the sockets and files without a callback."""
        rest: set[object] = set()
        for socket, _ in self.poller.poll(round(timeout_s * 1000)):
            known = self._of_socket.get(socket)
            if known is not None:
                known[0](known[1])
            elif isinstance(socket, int) or not socket.closed:
                rest.add(socket)
        return rest

    def subscription(self) -> zmq.Socket[bytes]:
        """Return a SUB socket that subscribes to all topics."""
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

    def replay_socket(self) -> zmq.Socket[bytes]:
        """Return a DEALER socket for a replay request."""
        socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_MESSAGE_BYTES)
        return socket


def received(socket: zmq.Socket[bytes] | None) -> list[bytes] | None:
    """Return the next message, or None if none is queued."""
    if socket is None or socket.closed:
        return None
    try:
        return socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
