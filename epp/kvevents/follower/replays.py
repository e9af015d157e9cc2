"""Requests missed batches again: one DEALER socket for each replay under way, and a limit on how many run at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import zmq

from epp.kvevents.follower.connections import Connection, SocketPoller, received
from epp.kvevents.follower.stream import Replay
from epp.kvevents.follower.tally import Tally

AT_ONCE = 64
"""Maximum number of batches read from one publisher before the others get their turn."""
IDLE_S = 5.0
BUDGET_S = 120.0
AGAIN_S = 30.0
"""How long after a failed replay it is tried again. The first attempts come sooner, after 2, 4, 8 ... seconds."""
RARELY_S = 1800.0
"""The longest wait after several replays that ended but left the stream incomplete: a batch that cannot be read stays
in the publisher's buffer.
"""
MOST = 8
"""Maximum number of replays at a time. Source: the Go picker's, like ``BUDGET_S`` and ``AGAIN_S``."""
END = (-1).to_bytes(8, "big", signed=True)


class Replays:
    """Starts, limits and ends the replays of all lines. Owner: the process that follows the engines."""

    def __init__(
        self,
        sockets: SocketPoller,
        tally: Tally,
        touch: Callable[[Connection], None],
        note: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        """``touch`` is called with each line whose state may have changed."""
        self._sockets = sockets
        self._tally = tally
        self._touch = touch
        self._note = note
        self._clock = clock
        self._waiting: deque[tuple[Connection, Replay]] = deque()
        self._under_way: set[Connection] = set()

    def request(self, connection: Connection, replay: Replay | None) -> None:
        """Begin ``replay``, or queue it; does nothing if it is None."""
        if replay is None:
            return
        self.end(connection)
        now = self._clock()
        if len(connection.recent) == connection.recent.maxlen and now - connection.recent[0] < AGAIN_S:
            self._failed(connection, now)  # each of its messages triggers another replay
            return
        connection.recent.append(now)
        self._begin_or_wait(connection, replay, now)

    def end(self, connection: Connection) -> None:
        """Cancel the line's replay, under way or queued."""
        self._under_way.discard(connection)
        if any(each is connection for each, _ in self._waiting):
            self._waiting = deque([(each, replay) for each, replay in self._waiting if each is not connection])
        if connection.dealer is not None:
            self._sockets.close(connection.dealer)
            connection.dealer = None

    def look(self) -> None:
        """Fail the replays that take too long, and begin queued ones."""
        now = self._clock()
        for connection in list(self._under_way):
            if now - connection.received_at > IDLE_S or now - connection.requested_at > BUDGET_S:
                self._failed(connection, now)
        while self._waiting and len(self._under_way) < MOST:
            self._begin(*self._waiting.popleft(), now)

    def try_again(self, connections: Iterable[Connection]) -> None:
        """Request again, where it is time, the batches of lines whose replay failed or could not be read."""
        now = self._clock()
        for connection in connections:
            if now >= connection.again_at and not connection.stream.replaying:
                replay = connection.source.do(connection.stream, connection.stream.retry())
                if replay is not None:  # a replay costs as much as the publisher's buffer has batches
                    connection.again_at = now + min(RARELY_S, AGAIN_S * 2.0 ** min(10, connection.whole_replays))
                    connection.whole_replays += 1
                    self._begin_or_wait(connection, replay, now)

    def _begin_or_wait(self, connection: Connection, replay: Replay, now: float) -> None:
        if len(self._under_way) < MOST:
            self._begin(connection, replay, now)
        else:
            self._waiting.append((connection, replay))

    def _begin(self, connection: Connection, replay: Replay, now: float) -> None:
        self._tally.replays += 1
        connection.requested_at = connection.received_at = now
        self._under_way.add(connection)
        dealer = connection.dealer = self._sockets.replay_socket()
        self._sockets.watch(dealer, self._receive, connection)
        try:
            dealer.connect(connection.wire.replay)
            dealer.send_multipart([b"", replay.start.to_bytes(8, "big")], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._note("address", f"{connection.wire.replay}: {error}")

    def _receive(self, connection: Connection) -> None:
        dealer = connection.dealer
        for _ in range(AT_ONCE):
            frames = received(dealer)
            if frames is None:
                return
            self._touch(connection)
            connection.received_at = self._clock()
            if len(frames) < 3 or len(frames[-2]) != 8:
                self._tally.malformed += 1
            elif frames[-2] == END:
                self.end(connection)
                connection.failures = 0
                self.request(connection, connection.source.do(connection.stream, connection.stream.replay_ended()))
                if connection.stream.why is None:
                    connection.whole_replays = 0
            else:
                number = int.from_bytes(frames[-2], "big")
                self.request(
                    connection, connection.source.do(connection.stream, connection.stream.replayed(number, frames[-1]))
                )

    def _failed(self, connection: Connection, now: float) -> None:
        self._tally.failed_replays += 1
        connection.failures += 1
        connection.again_at = now + min(AGAIN_S, 2.0**connection.failures)
        self.end(connection)
        self._touch(connection)
        connection.source.do(connection.stream, connection.stream.replay_failed())
