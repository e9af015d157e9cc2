"""When the requests of a stage arrive: all of them by a clock, or each when an earlier one has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from epp.lab.fleet.prompts import Ask


class Arriving(NamedTuple):
    """A request that arrives after ``delay_s``."""

    delay_s: float
    ask: Ask


class RequestSource(Protocol):
    """The requests of one stage. A stage ends when no request is left and none is in flight."""

    @property
    def requests(self) -> int:
        """The number of requests of the whole stage."""

    def begin(self) -> Iterable[Arriving]:
        """Return the requests that arrive by a clock, timed from the stage's start."""

    def ended(self, ask: Ask) -> Iterable[Arriving]:
        """Return the requests that follow the answer to ``ask``, timed from that answer."""


class Timed:
    """An open loop: requests arrive whether or not earlier ones were answered."""

    def __init__(self, arrivals: Sequence[Arriving]) -> None:
        self._arrivals = arrivals
        self.requests = len(arrivals)

    def begin(self) -> Iterable[Arriving]:
        """Return all requests of the stage."""
        return self._arrivals

    def ended(self, ask: Ask) -> Iterable[Arriving]:  # noqa: ARG002
        """Return nothing, since all requests arrive by a clock."""
        return ()


class Concurrent:
    """A closed loop: ``concurrency`` requests are in flight as long as enough are left."""

    def __init__(self, asks: Sequence[Ask], concurrency: int) -> None:
        self._left: Iterator[Ask] = iter(asks)
        self._concurrency = concurrency
        self.requests = len(asks)

    def begin(self) -> Iterable[Arriving]:
        """Return the first ``concurrency`` requests, without delay."""
        return [Arriving(0.0, ask) for _, ask in zip(range(self._concurrency), self._left, strict=False)]

    def ended(self, ask: Ask) -> Iterable[Arriving]:  # noqa: ARG002
        """Return the next request, without delay."""
        following = next(self._left, None)
        return () if following is None else (Arriving(0.0, following),)


class Sessions:
    """Multi-turn clients: each sends its next turn some time after the last answer; a client that is done is replaced.

    ``think_s`` draws that time; ``sessions`` has the turns of each client; ``concurrency`` clients are active at a
    time.
    """

    def __init__(self, sessions: Sequence[Sequence[Ask]], concurrency: int, think_s: Callable[[], float]) -> None:
        self._waiting = iter(sessions)
        self._turns: dict[str, Iterator[Ask]] = {}
        self._concurrency = concurrency
        self._think_s = think_s
        self.requests = sum(len(turns) for turns in sessions)

    def begin(self) -> Iterable[Arriving]:
        """Yield the first turns of the first clients."""
        for _ in range(self._concurrency):
            yield from self._next_session()

    def ended(self, ask: Ask) -> Iterable[Arriving]:
        """Return the session's next turn, or the first turn of the next session."""
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
