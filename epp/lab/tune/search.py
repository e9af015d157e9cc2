"""Successive halving: all candidates on few seeds, the better third of them on more, until one is left.

Every candidate of a round runs on the same seeds as the baseline and is judged by its ratio to it, seed by seed, so
that a seed that is hard for all makes no difference. Pure: the caller runs the simulations, and limits their time.

Source: K. Jamieson, A. Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization" (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, inf, log

KEPT = 3
"""One in this many candidates goes on to the next round."""
FINALISTS = 3
"""When this few are left, one more round decides."""

Evaluate = Callable[[Sequence[tuple[str, int]]], Mapping[tuple[str, int], float]]
"""Maps (name, seed) pairs to values to minimize, above 0; returns fewer than requested when time runs out."""


@dataclass(slots=True)
class Standing:
    """The results of one candidate: the logarithm of its ratio to the baseline, by seed."""

    name: str
    ratios: dict[int, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """The geometric mean over its seeds; 1 without any."""
        return exp(sum(self.ratios.values()) / len(self.ratios)) if self.ratios else 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search. ``standings`` has all candidates and the baseline, the longest in the race first."""

    standings: tuple[Standing, ...]
    runs: int
    rounds: int
    whole: bool
    """Whether there was time for everything that was planned."""
    next_runs: int = 0
    """Simulations of a further round, for which there was no time; 0 where only the plan ended the search."""

    @property
    def best(self) -> Standing:
        """The winner of the search."""
        return self.standings[0]


def rounds(count: int, seeds: int = 1) -> list[tuple[int, int]]:
    """Return (candidates, new seeds) of each round, when ``count`` candidates start with ``seeds`` seeds."""
    planned, alive = [], count
    while alive > FINALISTS:
        planned.append((alive, seeds))
        alive, seeds = max(FINALISTS, ceil(alive / KEPT)), seeds * 2
    return [*planned, (alive, seeds)] if alive else []


def runs_of(count: int, seeds: int = 1) -> int:
    """Return the simulations that those rounds take, the baseline's own included."""
    return sum((alive + 1) * each for alive, each in rounds(count, seeds))


def affordable(runs: int) -> int:
    """Return the most candidates that a search with ``runs`` simulations can have; 0 if there is no room for one."""
    count = 0
    while runs_of(count + 1) <= runs:
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class Round:
    """The summary of one finished round."""

    number: int
    """Counted from 1."""
    candidates: int
    seeds: int
    """New seeds of this round."""
    best: Standing


def search(
    names: Sequence[str],
    evaluate: Evaluate,
    first_seed: int,
    room: Callable[[], float] = lambda: inf,
    most_rounds: int | None = None,
    ended: Callable[[Round], None] = lambda _: None,
) -> Found:
    """Find the best of ``names``, the first of which is the baseline.

    ``room`` returns how many simulations there is still time for. If the remaining rounds take more, fewer candidates
    go on; if there is room after all of them, the finalists have further rounds, with as many new seeds as in the last
    one.
    ``most_rounds`` sets the number of rounds, whatever room there is. ``ended`` is called after each round.
    """
    baseline, others, whole = names[0], list(names[1:]), True
    standings = {name: Standing(name) for name in names}
    alive, seed, runs, number, next_runs, out = others, first_seed, 0, 0, 0, list[str]()
    for planned, (kept, new) in _rounds_without_end(len(others)):
        if most_rounds is not None and number == most_rounds:
            break
        if not planned and most_rounds is None:
            next_runs = (len(alive) + 1) * new if room() < inf else 0
            if not 0 < next_runs <= room():
                break
        fitting = kept = min(kept, len(alive))
        while planned and runs and fitting > 1 and runs_of(fitting, new) > room():
            fitting -= 1
        whole = whole and fitting == kept
        out, alive = [*alive[fitting:], *out], alive[:fitting]
        wanted = [(name, each) for each in range(seed, seed + new) for name in (baseline, *alive)]
        values = evaluate(wanted)
        runs, number = runs + len(values), number + 1
        for each in range(seed, seed + new):
            if any((name, each) not in values for name in (baseline, *alive)):
                continue  # the time ran out: a seed that not all candidates have run is not comparable
            for name in (baseline, *alive):
                standings[name].ratios[each] = log(values[name, each] / values[baseline, each])
        seed += new
        alive.sort(key=lambda name: standings[name].ratio)
        ended(Round(number, len(alive), new, min((standings[baseline], standings[alive[0]]), key=lambda s: s.ratio)))
        if len(values) < len(wanted):
            whole = False
            break
    ordered = [standings[name] for name in (*alive, *out)]
    worse = (n for n, standing in enumerate(ordered) if standing.ratio >= 1.0 or not standing.ratios)
    place = next(worse, len(ordered))
    return Found((*ordered[:place], standings[baseline], *ordered[place:]), runs, number, whole, next_runs)


def _rounds_without_end(count: int) -> Iterator[tuple[bool, tuple[int, int]]]:
    """Yield the planned rounds and then the last one repeatedly, each with whether it is planned."""
    planned = rounds(count)
    yield from ((True, each) for each in planned)
    while planned:
        yield False, planned[-1]
