"""When the requests of a stage come: all of them by a clock, or each when an earlier one has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from epp.lab.fleet.prompts import Ask


class Arriving(NamedTuple):
    """``ask`` comes after ``delay_s``."""

    delay_s: float
    ask: Ask


class Source(Protocol):
    """The requests of one stage. A stage ends when none is left and none is in flight."""

    @property
    def requests(self) -> int:
        """How many there will be in all."""

    def begin(self) -> Iterable[Arriving]:
        """Those that come by a clock, counted from the stage's start."""

    def ended(self, ask: Ask) -> Iterable[Arriving]:
        """Those that come because ``ask`` was answered, counted from then."""


class Timed:
    """An open loop: requests come whether or not earlier ones were answered."""

    def __init__(self, arrivals: Sequence[Arriving]) -> None:
        self._arrivals = arrivals
        self.requests = len(arrivals)

    def begin(self) -> Iterable[Arriving]:
        """All of them."""
        return self._arrivals

    def ended(self, ask: Ask) -> Iterable[Arriving]:  # noqa: ARG002
        """None."""
        return ()


class Concurrent:
    """A closed loop: ``concurrency`` requests in flight as long as there are enough left."""

    def __init__(self, asks: Sequence[Ask], concurrency: int) -> None:
        self._left: Iterator[Ask] = iter(asks)
        self._concurrency = concurrency
        self.requests = len(asks)

    def begin(self) -> Iterable[Arriving]:
        """The first ones, at once."""
        return [Arriving(0.0, ask) for _, ask in zip(range(self._concurrency), self._left, strict=False)]

    def ended(self, ask: Ask) -> Iterable[Arriving]:  # noqa: ARG002
        """The next one, at once."""
        following = next(self._left, None)
        return () if following is None else (Arriving(0.0, following),)


class Sessions:
    """Multi-turn clients: each asks its next turn some time after the last was answered, and then a new client comes.

    ``think_s`` says how long; ``sessions`` are the turns of each client; ``concurrency`` of them are there at a time.
    """

    def __init__(self, sessions: Sequence[Sequence[Ask]], concurrency: int, think_s: Callable[[], float]) -> None:
        self._waiting = iter(sessions)
        self._turns: dict[str, Iterator[Ask]] = {}
        self._concurrency = concurrency
        self._think_s = think_s
        self.requests = sum(len(turns) for turns in sessions)

    def begin(self) -> Iterable[Arriving]:
        """The first turns of the first clients."""
        for _ in range(self._concurrency):
            yield from self._next_session()

    def ended(self, ask: Ask) -> Iterable[Arriving]:
        """The session's next turn, or the next session's first."""
        following = next(self._turns[ask.session], None)
        if following is not None:
            return (Arriving(self._think_s(), following),)
        del self._turns[ask.session]
        return self._next_session()

    def _next_session(self) -> tuple[Arriving, ...]:
        for asks in self._waiting:
            turns = iter(asks)
            first = next(turns, None)
            if first is not None:
                self._turns[first.session] = turns
                return (Arriving(0.0, first),)
        return ()
