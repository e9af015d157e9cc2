"""Missed batches, asked for again: one DEALER socket for each replay under way, and not too many at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import zmq

from epp.kvevents.follower.lines import Line, Watching, received
from epp.kvevents.follower.stream import Replay
from epp.kvevents.follower.tally import Tally

AT_ONCE = 64
"""Batches of one publisher between two looks at the others."""
IDLE_S = 5.0
BUDGET_S = 120.0
AGAIN_S = 30.0
"""After one that failed; the first times sooner, after 2, 4, 8 ... seconds."""
RARELY_S = 1800.0
"""After several that ended, and left the publisher as unknown as before: what cannot be read stays in its buffer."""
MOST = 8
"""At a time. Source, with the two before: the Go picker's."""
END = (-1).to_bytes(8, "big", signed=True)


class Replays:
    """Owner: the process that follows the engines."""

    def __init__(
        self,
        watching: Watching,
        tally: Tally,
        touch: Callable[[Line], None],
        note: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        """``touch`` is told of lines about which something may have changed."""
        self._watching = watching
        self._tally = tally
        self._touch = touch
        self._note = note
        self._clock = clock
        self._waiting: deque[tuple[Line, Replay]] = deque()
        self._under_way: set[Line] = set()

    def ask(self, line: Line, replay: Replay | None) -> None:
        """Do what the line's stream wants, if it wants something."""
        if replay is None:
            return
        self.end(line)
        now = self._clock()
        if len(line.recent) == line.recent.maxlen and now - line.recent[0] < AGAIN_S:
            self._failed(line, now)  # whatever it sends leads to the next question
            return
        line.recent.append(now)
        self._begin_or_wait(line, replay, now)

    def end(self, line: Line) -> None:
        """Ask for no more."""
        self._under_way.discard(line)
        if any(each is line for each, _ in self._waiting):
            self._waiting = deque([(each, replay) for each, replay in self._waiting if each is not line])
        if line.dealer is not None:
            self._watching.close(line.dealer)
            line.dealer = None

    def look(self) -> None:
        """Give up what takes too long, and begin what waits."""
        now = self._clock()
        for line in list(self._under_way):
            if now - line.heard_at > IDLE_S or now - line.asked_at > BUDGET_S:
                self._failed(line, now)
        while self._waiting and len(self._under_way) < MOST:
            self._begin(*self._waiting.popleft(), now)

    def try_again(self, lines: Iterable[Line]) -> None:
        """Ask those again whose replay failed, or could not be read, if it is time."""
        now = self._clock()
        for line in lines:
            if now >= line.again_at and not line.stream.replaying:
                replay = line.source.do(line.stream, line.stream.retry())
                if replay is not None:  # each time costs as much as its buffer has batches
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
