"""How long a search may take, and how many simulations fit into that time."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil, inf

from epp.errors import ConfigError
from epp.lab.tune.options import TuneOptions
from epp.lab.tune.search import Found, affordable, rounds, runs_of
from epp.lab.tune.simulations import Simulations

FEWEST, MOST_CANDIDATES = 3, 400
CARE = 0.8
"""The share of the remaining time that is planned, since other candidates may take longer than the baseline."""


class Budget:
    """The time limit of one search, which starts when this object is made. ``--candidates`` removes the limit."""

    def __init__(
        self, options: TuneOptions, simulated: Simulations, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options, self._simulated, self._clock = options, simulated, clock
        self._began = clock()

    @property
    def spent_s(self) -> float:
        """Seconds since the search began."""
        return self._clock() - self._began

    @property
    def endless(self) -> bool:
        """Whether the number of candidates limits the search, instead of time."""
        return self._options.candidates is not None

    def candidates(self) -> int:
        """Return the number of candidates that the time allows.

        Raises: ConfigError if they are too few; it names a sufficient budget.
        """
        options, each_s = self._options, self._simulated.each_s
        if options.candidates is not None:
            return options.candidates
        spent_s, held_out_s = self.spent_s, 2 * options.held_out * each_s
        count = min(affordable(int((options.budget_s - spent_s - held_out_s) * CARE / each_s)), MOST_CANDIDATES)
        if count < FEWEST:
            enough_s = runs_of(FEWEST) * each_s / CARE + held_out_s + spent_s
            raise ConfigError(
                f"--budget={options.budget_s:g}s: one simulation of this workload takes {each_s:.1f} s, and a search "
                f"with 2 x {options.held_out} held-out ones {ceil(enough_s * 1.2)} s at least; raise --budget, or "
                "lower --held-out or --endpoints"
            )
        return count

    def room(self) -> float:
        """Return how many simulations of the search still fit, with those on held-out seeds set aside."""
        if self.endless:
            return inf
        left_s = self._options.budget_s - self.spent_s
        return left_s * CARE / self._simulated.each_s - 2 * self._options.held_out

    def allows_another(self, after: int = 0) -> bool:
        """Return whether another simulation may begin, if ``after`` more are to follow it."""
        return self.endless or self.spent_s + after * self._simulated.each_s / CARE < self._options.budget_s

    def in_words(self, found: Found) -> str:
        """Describe what the search took, why it ended, and which flags repeat it."""
        count = len(found.standings) - 1
        again = f"--candidates={count} --seed={self._options.seed}"
        if found.whole and found.rounds != len(rounds(count)):
            again = f"--candidates={count} --rounds={found.rounds} --seed={self._options.seed}"
        took = f"The search took {self.spent_s:.0f} s"
        if not self.endless:
            took += f" of the {self._options.budget_s:.0f} s that it may take"
        if not found.whole:
            return f"{took}; the time ended it early, all of it is {again}."
        if not found.next_runs:
            return f"{took}; repeat it with {again}."
        next_s = found.next_runs * self._simulated.each_s
        return f"{took}: no time for another round, which would take about {ceil(next_s)} s. Repeat it with {again}."
