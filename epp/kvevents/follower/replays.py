"""Requests missed batches again: one DEALER socket for each replay under way, and a limit on how many run at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import zmq

from epp.kvevents.follower.lines import Line, Watching, received
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
        watching: Watching,
        tally: Tally,
        touch: Callable[[Line], None],
        note: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        """``touch`` is called with each line whose state may have changed."""
        self._watching = watching
        self._tally = tally
        self._touch = touch
        self._note = note
        self._clock = clock
        self._waiting: deque[tuple[Line, Replay]] = deque()
        self._under_way: set[Line] = set()

    def ask(self, line: Line, replay: Replay | None) -> None:
        """Begin ``replay``, or queue it; does nothing if it is None."""
        if replay is None:
            return
        self.end(line)
        now = self._clock()
        if len(line.recent) == line.recent.maxlen and now - line.recent[0] < AGAIN_S:
            self._failed(line, now)  # each of its messages triggers another replay
            return
        line.recent.append(now)
        self._begin_or_wait(line, replay, now)

    def end(self, line: Line) -> None:
        """Cancel the line's replay, under way or queued."""
        self._under_way.discard(line)
        if any(each is line for each, _ in self._waiting):
            self._waiting = deque([(each, replay) for each, replay in self._waiting if each is not line])
        if line.dealer is not None:
            self._watching.close(line.dealer)
            line.dealer = None

    def look(self) -> None:
        """Fail the replays that take too long, and begin queued ones."""
        now = self._clock()
        for line in list(self._under_way):
            if now - line.heard_at > IDLE_S or now - line.asked_at > BUDGET_S:
                self._failed(line, now)
        while self._waiting and len(self._under_way) < MOST:
            self._begin(*self._waiting.popleft(), now)

    def try_again(self, lines: Iterable[Line]) -> None:
        """Request again, where it is time, the batches of lines whose replay failed or could not be read."""
        now = self._clock()
        for line in lines:
            if now >= line.again_at and not line.stream.replaying:
                replay = line.source.do(line.stream, line.stream.retry())
                if replay is not None:  # a replay costs as much as the publisher's buffer has batches
                    line.again_at = now + min(RARELY_S, AGAIN_S * 2.0 ** min(10, line.vain))
                    line.vain += 1
                    self._begin_or_wait(line, replay, now)

    def _begin_or_wait(self, line: Line, replay: Replay, now: float) -> None:
        if len(self._under_way) < MOST:
            self._begin(line, replay, now)
        else:
            self._waiting.append((line, replay))

    def _begin(self, line: Line, replay: Replay, now: float) -> None:
        self._tally.replays += 1
        line.asked_at = line.heard_at = now
        self._under_way.add(line)
        dealer = line.dealer = self._watching.question()
        self._watching.watch(dealer, self._hear, line)
        try:
            dealer.connect(line.wire.replay)
            dealer.send_multipart([b"", replay.start.to_bytes(8, "big")], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._note("address", f"{line.wire.replay}: {error}")

    def _hear(self, line: Line) -> None:
        dealer = line.dealer
        for _ in range(AT_ONCE):
            frames = received(dealer)
            if frames is None:
                return
            self._touch(line)
            line.heard_at = self._clock()
            if len(frames) < 3 or len(frames[-2]) != 8:
                self._tally.malformed += 1
            elif frames[-2] == END:
                self.end(line)
                line.failures = 0
                self.ask(line, line.source.do(line.stream, line.stream.replay_ended()))
                if line.stream.why is None:
                    line.vain = 0
            else:
                number = int.from_bytes(frames[-2], "big")
                self.ask(line, line.source.do(line.stream, line.stream.replayed(number, frames[-1])))

    def _failed(self, line: Line, now: float) -> None:
        self._tally.failed_replays += 1
        line.failures += 1
        line.again_at = now + min(AGAIN_S, 2.0**line.failures)
        self.end(line)
        self._touch(line)
        line.source.do(line.stream, line.stream.replay_failed())
