"""The winner's gain on seeds that the search has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from epp.lab.fleet.figures import Figures, Interval, changes
from epp.lab.tune.options import Objective


class Column(msgspec.Struct, frozen=True):
    """One figure, and whether less of it is better."""

    title: str
    of: Callable[[Figures], float]
    less: bool = True
    digits: int = 2


COLUMNS = {
    Objective.MEAN_TTFT: Column("mean TTFT (s)", lambda f: f.mean_ttft_s),
    Objective.P90_TTFT: Column("P90 TTFT (s)", lambda f: f.p90_ttft_s),
    Objective.MEAN_E2E: Column("mean E2E (s)", lambda f: f.mean_e2e_s),
    Objective.P90_E2E: Column("P90 E2E (s)", lambda f: f.p90_e2e_s),
    Objective.THROUGHPUT: Column("throughput (tok/s)", lambda f: f.tokens_per_s, less=False, digits=0),
}


def cost(objective: Objective, figures: Figures) -> float:
    """Return the value that the search minimizes, above 0."""
    column = COLUMNS[objective]
    value = max(column.of(figures), 1e-9)
    return value if column.less else 1 / value


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one figure from the baseline to the winner, as a share of the baseline, with its 95 % interval."""

    baseline: float
    winner: float
    change: float
    margin: float


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """The winner's gain in every figure."""

    seeds: tuple[int, ...]
    changes: dict[str, Change]
    """Changes by objective."""
    proven: bool
    """Whether the objective is better by more than its margin."""


def gain_of(objective: Objective, seeds: Sequence[int], base: Sequence[Figures], winner: Sequence[Figures]) -> Gain:
    """Return the winner's gain, with runs of equal seeds compared; all arguments have the order of ``seeds``."""
    found: dict[str, Change] = {}
    for each, column in COLUMNS.items():
        interval: Interval = changes(winner, base, column.of)
        found[each.value] = Change(
            baseline=_mean(base, column.of),
            winner=_mean(winner, column.of),
            change=interval.mean,
            margin=interval.margin,
        )
    wanted = found[objective.value]
    sign = 1 if COLUMNS[objective].less else -1
    return Gain(seeds=tuple(seeds), changes=found, proven=wanted.change * sign + wanted.margin < 0)


def _mean(runs: Sequence[Figures], of: Callable[[Figures], float]) -> float:
    return sum(of(figures) for figures in runs) / len(runs)
