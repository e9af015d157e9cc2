"""Follows the engines' publishers over ZeroMQ, and writes orders for the picker's index.

Runs in a process of its own. Each publisher has one SUB socket, whose connection is monitored, and each replay under
way has one DEALER socket. Where the configuration has publishers connect to us instead, there is one SUB socket for all
of them, and their topics (``kv@ADDRESS@MODEL``) identify the endpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from epp.kvevents.follower.connections import Connection, SocketPoller, received
from epp.kvevents.follower.decoding import Unreadable, decode
from epp.kvevents.follower.replays import AT_ONCE, Replays
from epp.kvevents.follower.runs import Runs
from epp.kvevents.follower.source import Source
from epp.kvevents.follower.stream import Stream
from epp.kvevents.follower.tally import Tally
from epp.kvevents.orders import Add, Command, Counts, Follow, FollowerMessage, Grow, Leave, Left, Note, Start, Wire

FLUSH_S = 0.002
REPORT_S = 1.0
MESSAGE_BYTES = 32 << 10
"""About how many bytes of orders go into one message. The picker reads such a message in 0.1 ms."""
ORDER_BYTES = 16
MOST_NOTES = {"lora": 10_000}
FEW_NOTES = 100
"""The limit of distinct notes of every other kind, since they go into the log."""
MOST_RANKS = 256
"""Maximum number of ranks of an endpoint that connects to us; the same limit as for one that we connect to."""
_WATCHED = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Subscriber:
    """Holds all sockets and sources, and turns what publishers send into reports. Owner: the process's only thread."""

    def __init__(
        self, start: Start, send: Callable[[list[FollowerMessage]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send = send
        self._clock = clock
        self._topic = start.topic.encode()
        self._runs = Runs(start.secret)
        self._tally = Tally()
        self._sources: dict[int, Source] = {}
        self._by_address: dict[str, Source] = {}
        self._connections: dict[int, list[Connection]] = {}
        self._ranks: dict[tuple[int, int], Connection] = {}  # of publishers that connect to us, by source and rank
        self._touched: dict[int, Source] = {}
        self._noted: dict[str, set[str]] = {}
        self._reports: list[FollowerMessage] = []
        self._flushed_at = self._reported_at = clock()
        self.sockets = SocketPoller()
        self._replays = Replays(self.sockets, self._tally, self._touch, self._note, clock)
        self._bound = self._bind(start.bind) if start.bind else None

    def command(self, command: Command) -> None:
        """Carry out a command of the picker."""
        if isinstance(command, Follow):
            self._follow(command)
        elif isinstance(command, Leave):
            self._leave(command.source)

    def step(self, idle_s: float = REPORT_S) -> set[int]:
        """Wait for events for at most ``idle_s``, handle them, and return the registered files that are ready."""
        waiting = FLUSH_S if self._touched or self._reports else idle_s
        rest = self.sockets.wait(waiting)
        if self._bound in rest:
            self._receive_all()
        self._replays.look()
        now = self._clock()
        if now - self._flushed_at >= FLUSH_S:
            self.flush(now)
        return {each for each in rest if isinstance(each, int)}

    def flush(self, now: float) -> None:
        """Send the picker everything that has changed since the last flush."""
        self._flushed_at = now
        all_of_them = now - self._reported_at >= REPORT_S
        orders: list[FollowerMessage] = [*self._runs.take()] if self._touched or self._reports else []
        for source in list(self._sources.values() if all_of_them else self._touched.values()):
            status = source.status(with_tokens=all_of_them)
            if status is not None:
                orders.append(status)
        self._touched.clear()
        orders += self._reports
        self._reports = []
        if all_of_them:
            self._reported_at = now
            self._replays.try_again(
                [connection for connections in self._connections.values() for connection in connections]
            )
            orders.append(Counts(msgspec.structs.asdict(self._tally), self._runs.distinct_blocks, len(self._runs)))
        self._in_pieces(orders)

    def close(self) -> None:
        """Close every socket and the ZeroMQ context."""
        for number in list(self._sources):
            self._leave(number)
        if self._bound is not None:
            self._bound.close(0)
        self.sockets.context.destroy(0)

    def _in_pieces(self, orders: list[FollowerMessage]) -> None:
        begin, size = 0, 0
        for n, order in enumerate(orders):
            size += ORDER_BYTES + (len(order.digests) if isinstance(order, Add | Grow) else 0)
            if size >= MESSAGE_BYTES:
                self._send(orders[begin : n + 1])
                begin, size = n + 1, 0
        if begin < len(orders):
            self._send(orders[begin:])

    # Following and leaving

    def _follow(self, follow: Follow) -> None:
        source = Source(follow.source, follow.address, self._runs, self._tally, self._note)
        self._sources[source.number] = self._by_address[follow.address] = source
        self._touched[source.number] = source
        self._connections[source.number] = []
        for wire in follow.wires:
            connection = Connection(source, wire, Stream(replays=bool(wire.replay)))
            source.streams.append(connection.stream)
            self._connections[source.number].append(connection)
            self._connect(connection)

    def _leave(self, number: int) -> None:
        source = self._sources.pop(number, None)
        if source is None:
            return
        if self._by_address.get(source.address) is source:
            del self._by_address[source.address]
        for connection in self._connections.pop(number):
            self._replays.end(connection)
            if connection.events is not None and connection.monitor is not None:
                connection.events.disable_monitor()
                self.sockets.close(connection.monitor)
                self.sockets.close(connection.events)
        for key in [key for key in self._ranks if key[0] == number]:
            del self._ranks[key]
        source.residents.forget()
        self._touched.pop(number, None)
        self._reports.append(Left(number))

    def _connect(self, connection: Connection) -> None:
        try:
            events = connection.events = self.sockets.subscription()
            connection.monitor = events.get_monitor_socket(_WATCHED)
            self.sockets.watch(connection.monitor, self._watched, connection)
            self.sockets.watch(events, self._receive, connection)
            events.connect(connection.wire.events)
        except zmq.ZMQError as error:
            self._note("address", f"{connection.wire.events}: {error}")

    def _bind(self, where: str) -> zmq.Socket[bytes]:
        socket = self.sockets.subscription()
        socket.bind(where)
        self.sockets.poller.register(socket, zmq.POLLIN)
        return socket

    # Messages from publishers

    def _watched(self, connection: Connection) -> None:
        while connection.monitor is not None and connection.monitor.poll(0):
            event = recv_monitor_message(connection.monitor)
            self._touch(connection)
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._replays.request(
                    connection, connection.source.do(connection.stream, connection.stream.connected())
                )
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                connection.stream.disconnected()

    def _receive(self, connection: Connection) -> None:
        for _ in range(AT_ONCE):
            frames = received(connection.events)
            if frames is None:
                return
            if len(frames) != 3 or len(frames[1]) != 8:
                self._tally.malformed += 1
                continue
            topic, number, payload = frames
            if not topic.startswith(self._topic):
                self._tally.other_topics += 1
                self._note("topic", topic[:256].decode(errors="replace"))
                continue
            self._take(connection, int.from_bytes(number, "big"), payload)

    def _receive_all(self) -> None:
        """Read from publishers that connect to us. The topic names the endpoint, and the batch names its rank."""
        for _ in range(AT_ONCE):
            frames = received(self._bound)
            if frames is None:
                return
            parts = frames[0].decode(errors="replace").split("@")
            if len(frames) != 3 or len(frames[1]) != 8:
                self._tally.malformed += 1
                continue
            source = self._sender(parts[1]) if len(parts) > 1 and frames[0].startswith(self._topic) else None
            if source is None:
                self._tally.other_topics += 1
                self._note("topic", frames[0][:256].decode(errors="replace"))
                continue
            try:
                rank = decode(frames[2]).rank
            except Unreadable:
                rank = 0
            connection = self._ranks.get((source.number, rank))
            if connection is None and len(source.streams) >= MOST_RANKS:
                self._tally.malformed += 1
                continue
            if connection is None:
                connection = self._ranks[source.number, rank] = Connection(source, Wire(""), Stream(replays=False))
                source.streams.append(connection.stream)
            self._take(connection, int.from_bytes(frames[1], "big"), frames[2])

    def _sender(self, address: str) -> Source | None:
        """Return the source with this address, or the only source at this host if ``address`` has no port."""
        source = self._by_address.get(address)
        if source is None and address:
            at_host = [each for known, each in self._by_address.items() if known.rpartition(":")[0] == address]
            source = at_host[0] if len(at_host) == 1 else None
        return source

    def _take(self, connection: Connection, number: int, payload: bytes) -> None:
        self._touch(connection)
        self._replays.request(
            connection, connection.source.do(connection.stream, connection.stream.live(number, payload))
        )

    def _touch(self, connection: Connection) -> None:
        self._touched[connection.source.number] = connection.source

    def _note(self, kind: str, value: str) -> None:
        noted = self._noted.setdefault(kind, set())
        if value not in noted and len(noted) < MOST_NOTES.get(kind, FEW_NOTES):
            noted.add(value)
            self._reports.append(Note(kind, value))
