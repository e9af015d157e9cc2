"""Follows the engines' publishers over ZeroMQ, and writes orders for the picker's index.

Runs in a process of its own. One SUB socket for each publisher, watched for its connection; a DEALER socket for each
replay under way. Where the configuration has publishers connect to us instead, one SUB socket for all of them, whose
topics (``kv@ADDRESS@MODEL``) say who speaks.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from epp.kvevents.decoding import Unreadable, decode
from epp.kvevents.orders import Add, Command, Counts, Follow, Grow, Leave, Left, Note, Report, Start, Wire
from epp.kvevents.runs import Runs
from epp.kvevents.source import Source
from epp.kvevents.stream import Replay, Stream
from epp.kvevents.tally import Tally

log = logging.getLogger(__name__)

MOST_MESSAGE_BYTES = 64 << 20
MOST_QUEUED = 10_000
"""Batches of one publisher; of more, the publisher drops some, which is a gap."""
AT_ONCE = 64
"""Batches of one publisher between two looks at the others."""
FLUSH_S = 0.002
REPORT_S = 1.0
REPLAY_IDLE_S = 2.0
REPLAY_BUDGET_S = 120.0
REPLAY_AGAIN_S = 30.0
MOST_REPLAYS = 8
"""At a time. Source, with the three before: the Go picker's."""
MESSAGE_BYTES = 32 << 10
"""Of orders, about: the picker reads one in 0.1 ms."""
ORDER_BYTES = 16
END = (-1).to_bytes(8, "big", signed=True)
_WATCHED = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Line:
    """The sockets to one publisher."""

    def __init__(self, source: Source, wire: Wire, stream: Stream) -> None:
        self.source = source
        self.wire = wire
        self.stream = stream
        self.events: zmq.Socket[bytes] | None = None
        self.monitor: zmq.Socket[bytes] | None = None
        self.dealer: zmq.Socket[bytes] | None = None
        self.asked_at = self.heard_at = 0.0
        self.recent: deque[float] = deque(maxlen=3)
        """When replays were asked for."""


class Subscriber:
    """Owner: the process's only thread."""

    def __init__(
        self, start: Start, send: Callable[[list[Report]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send = send
        self._clock = clock
        self._topic = start.topic.encode()
        self._runs = Runs(start.secret)
        self._tally = Tally()
        self._sources: dict[int, Source] = {}
        self._by_address: dict[str, Source] = {}
        self._lines: dict[int, list[Line]] = {}
        self._ranks: dict[tuple[int, int], Line] = {}  # of publishers that connect to us
        self._of_socket: dict[object, tuple[Callable[[Line], None], Line]] = {}
        self._touched: dict[int, Source] = {}
        self._noted: set[tuple[str, str]] = set()
        self._reports: list[Report] = []
        self._queued: deque[tuple[Line, Replay]] = deque()
        self._replaying: set[Line] = set()
        self._flushed_at = self._reported_at = clock()
        self._context = zmq.Context()
        self.poller = zmq.Poller()
        self._bound = self._bind(start.bind) if start.bind else None

    def command(self, command: Command) -> None:
        """Do what the picker says."""
        if isinstance(command, Follow):
            self._follow(command)
        elif isinstance(command, Leave):
            self._leave(command.source)

    def step(self, idle_s: float = REPORT_S) -> set[int]:
        """Wait until something happens, for at most ``idle_s``, and deal with it; returns the files that are ready."""
        waiting = FLUSH_S if self._touched or self._reports else idle_s
        files: set[int] = set()
        for socket, _ in self.poller.poll(round(waiting * 1000)):
            if socket is self._bound:
                self._hear_all()
            elif isinstance(socket, int):
                files.add(socket)
            elif (deal := self._of_socket.get(socket)) is not None:
                deal[0](deal[1])
        now = self._clock()
        self._look_after_replays(now)
        if now - self._flushed_at >= FLUSH_S:
            self.flush(now)
        return files

    def flush(self, now: float) -> None:
        """Tell the picker what has changed."""
        self._flushed_at = now
        all_of_them = now - self._reported_at >= REPORT_S
        orders: list[Report] = [*self._runs.take()] if self._touched or self._reports else []
        for source in list(self._sources.values() if all_of_them else self._touched.values()):
            fares = source.fares(with_tokens=all_of_them)
            if fares is not None:
                orders.append(fares)
        self._touched.clear()
        orders += self._reports
        self._reports = []
        if all_of_them:
            self._reported_at = now
            self._try_again(now)
            orders.append(Counts(msgspec.structs.asdict(self._tally), self._runs.distinct_blocks, len(self._runs)))
        self._in_pieces(orders)

    def close(self) -> None:
        """Let go of every socket."""
        for number in list(self._sources):
            self._leave(number)
        if self._bound is not None:
            self._bound.close(0)
        self._context.destroy(0)

    def _in_pieces(self, orders: list[Report]) -> None:
        begin, size = 0, 0
        for n, order in enumerate(orders):
            size += ORDER_BYTES + (len(order.digests) if isinstance(order, Add | Grow) else 0)
            if size >= MESSAGE_BYTES:
                self._send(orders[begin : n + 1])
                begin, size = n + 1, 0
        if begin < len(orders):
            self._send(orders[begin:])

    # Whom to follow

    def _follow(self, follow: Follow) -> None:
        source = Source(follow.source, follow.address, self._runs, self._tally, self._note)
        self._sources[source.number] = self._by_address[follow.address] = source
        self._touched[source.number] = source
        self._lines[source.number] = []
        for wire in follow.wires:
            line = Line(source, wire, Stream(replays=bool(wire.replay)))
            source.streams.append(line.stream)
            self._lines[source.number].append(line)
            self._connect(line)

    def _leave(self, number: int) -> None:
        source = self._sources.pop(number, None)
        if source is None:
            return
        if self._by_address.get(source.address) is source:
            del self._by_address[source.address]
        for line in self._lines.pop(number):
            self._end_replay(line)
            if line.events is not None and line.monitor is not None:
                self._unwatch(line.monitor)
                line.events.disable_monitor()
                line.monitor.close(0)
                self._unwatch(line.events)
                line.events.close(0)
        for key in [key for key in self._ranks if key[0] == number]:
            del self._ranks[key]
        source.residents.forget()
        self._touched.pop(number, None)
        self._reports.append(Left(number))

    def _connect(self, line: Line) -> None:
        events = line.events = self._subscription()
        line.monitor = events.get_monitor_socket(_WATCHED)
        self._watch(line.monitor, self._watched, line)
        self._watch(events, self._hear, line)
        try:
            events.connect(line.wire.events)
        except zmq.ZMQError as error:
            self._note("address", f"{line.wire.events}: {error}")

    def _bind(self, where: str) -> zmq.Socket[bytes]:
        socket = self._subscription()
        socket.bind(where)
        self.poller.register(socket, zmq.POLLIN)
        return socket

    def _subscription(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.RCVHWM, MOST_QUEUED)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_MESSAGE_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5000)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 10_000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 30_000)
        socket.setsockopt(zmq.LINGER, 0)
        socket.subscribe(b"")
        return socket

    def _watch(self, socket: zmq.Socket[bytes], deal: Callable[[Line], None], line: Line) -> None:
        self._of_socket[socket] = (deal, line)
        self.poller.register(socket, zmq.POLLIN)

    def _unwatch(self, socket: zmq.Socket[bytes]) -> None:
        if self._of_socket.pop(socket, None) is not None:
            self.poller.unregister(socket)

    # What they say

    def _watched(self, line: Line) -> None:
        while line.monitor is not None and line.monitor.poll(0):
            said = recv_monitor_message(line.monitor)
            self._touched[line.source.number] = line.source
            if said["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._ask(line, line.source.do(line.stream, line.stream.connected()))
            elif said["event"] == zmq.EVENT_DISCONNECTED:
                line.stream.disconnected()

    def _hear(self, line: Line) -> None:
        for _ in range(AT_ONCE):
            frames = self._received(line.events)
            if frames is None:
                return
            if len(frames) != 3 or len(frames[1]) != 8:
                self._tally.malformed += 1
                continue
            topic, number, payload = frames
            if not topic.startswith(self._topic):
                self._tally.other_topics += 1
                self._note("topic", topic.decode(errors="replace"))
                continue
            self._take(line, int.from_bytes(number, "big"), payload)

    def _hear_all(self) -> None:
        """Publishers that connect to us: the topic says who speaks, and the batch for which of its ranks."""
        for _ in range(AT_ONCE):
            frames = self._received(self._bound)
            if frames is None:
                return
            parts = frames[0].decode(errors="replace").split("@")
            if len(frames) != 3 or len(frames[1]) != 8:
                self._tally.malformed += 1
                continue
            source = self._speaker(parts[1]) if len(parts) > 1 and frames[0].startswith(self._topic) else None
            if source is None:
                self._tally.other_topics += 1
                self._note("topic", frames[0].decode(errors="replace"))
                continue
            try:
                rank = decode(frames[2]).rank
            except Unreadable:
                rank = 0
            line = self._ranks.get((source.number, rank))
            if line is None:
                line = self._ranks[source.number, rank] = Line(source, Wire(""), Stream(replays=False))
                source.streams.append(line.stream)
            self._take(line, int.from_bytes(frames[1], "big"), frames[2])

    def _speaker(self, address: str) -> Source | None:
        """By its whole address, or by its host where that has one endpoint."""
        source = self._by_address.get(address)
        if source is None and address:
            at_host = [each for known, each in self._by_address.items() if known.rpartition(":")[0] == address]
            source = at_host[0] if len(at_host) == 1 else None
        return source

    def _take(self, line: Line, number: int, payload: bytes) -> None:
        self._touched[line.source.number] = line.source
        self._ask(line, line.source.do(line.stream, line.stream.live(number, payload)))

    @staticmethod
    def _received(socket: zmq.Socket[bytes] | None) -> list[bytes] | None:
        if socket is None:
            return None
        try:
            return socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def _note(self, kind: str, value: str) -> None:
        key = (kind, value[:256])
        if key not in self._noted and len(self._noted) < 10_000:
            self._noted.add(key)
            self._reports.append(Note(*key))

    # Replays

    def _ask(self, line: Line, replay: Replay | None) -> None:
        if replay is None:
            return
        self._end_replay(line)
        now = self._clock()
        if len(line.recent) == line.recent.maxlen and now - line.recent[0] < REPLAY_AGAIN_S:
            self._failed(line)  # whatever it sends leads to the next question
        elif len(self._replaying) >= MOST_REPLAYS:
            self._queued.append((line, replay))
        else:
            self._begin(line, replay, now)

    def _begin(self, line: Line, replay: Replay, now: float) -> None:
        line.recent.append(now)
        self._tally.replays += 1
        dealer = line.dealer = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.IPV6, 1)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.MAXMSGSIZE, MOST_MESSAGE_BYTES)
        line.asked_at = line.heard_at = now
        self._replaying.add(line)
        self._watch(dealer, self._hear_replay, line)
        try:
            dealer.connect(line.wire.replay)
            dealer.send_multipart([b"", replay.start.to_bytes(8, "big")], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._note("address", f"{line.wire.replay}: {error}")

    def _hear_replay(self, line: Line) -> None:
        dealer = line.dealer
        for _ in range(AT_ONCE):
            frames = self._received(dealer) if line.dealer is dealer else None
            if frames is None:
                return
            self._touched[line.source.number] = line.source
            line.heard_at = self._clock()
            if len(frames) < 3 or len(frames[-2]) != 8:
                self._tally.malformed += 1
            elif frames[-2] == END:
                self._end_replay(line)
                self._ask(line, line.source.do(line.stream, line.stream.replay_ended()))
            else:
                number = int.from_bytes(frames[-2], "big")
                self._ask(line, line.source.do(line.stream, line.stream.replayed(number, frames[-1])))

    def _end_replay(self, line: Line) -> None:
        self._replaying.discard(line)
        if any(each is line for each, _ in self._queued):
            self._queued = deque([(each, replay) for each, replay in self._queued if each is not line])
        if line.dealer is not None:
            self._unwatch(line.dealer)
            line.dealer.close(0)
            line.dealer = None

    def _failed(self, line: Line) -> None:
        self._tally.failed_replays += 1
        self._end_replay(line)
        self._touched[line.source.number] = line.source
        line.source.do(line.stream, line.stream.replay_failed())

    def _look_after_replays(self, now: float) -> None:
        for line in list(self._replaying):
            if now - line.heard_at > REPLAY_IDLE_S or now - line.asked_at > REPLAY_BUDGET_S:
                self._failed(line)
        while self._queued and len(self._replaying) < MOST_REPLAYS:
            self._begin(*self._queued.popleft(), now)

    def _try_again(self, now: float) -> None:
        """Ask those again whose replay failed, or could not be read."""
        for line in [line for lines in self._lines.values() for line in lines]:
            if not line.recent or now - line.recent[-1] >= REPLAY_AGAIN_S:
                self._ask(line, line.source.do(line.stream, line.stream.retry()))
