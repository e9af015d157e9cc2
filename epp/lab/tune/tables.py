"""The tables that show people what was tried and the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType

from epp.lab.fleet.policies import Policy
from epp.lab.tune.candidates import BASELINE
from epp.lab.tune.gain import COLUMNS, Gain
from epp.lab.tune.options import Objective
from epp.lab.tune.search import Found
from epp.printing.prose import Prose
from epp.printing.sheet import Sheet

SHOWN = 12
"""Candidates in the table; the file has all of them."""


def race(found: Found, by_name: Mapping[str, Policy], objective: Objective) -> Iterator[RenderableType]:
    """Yield the best candidates, the baseline among them, and how to read the table."""
    what = COLUMNS[objective].title.partition(" (")[0]
    table = Sheet(f"What was tried: {what} as a multiple of {BASELINE}'s", "", "×", "runs")
    shown = [s for n, s in enumerate(found.standings) if n < SHOWN or s.name == BASELINE]
    for standing in shown:
        baseline = standing.name == BASELINE
        title = f"{by_name[standing.name].title}{' (what it is compared to)' if baseline else ''}"
        ratio = standing.ratio if COLUMNS[objective].less else 1 / standing.ratio
        table.add(title, f"{ratio:.3f}", str(len(standing.ratios)), style="bold" if baseline else "")
    if len(found.standings) > len(shown):
        table.add(f"and {len(found.standings) - len(shown)} more", style="dim")
    yield table
    better = "Less is better" if COLUMNS[objective].less else "More is better"
    yield Prose(
        f"{better}. Weights are those of queue : KV memory in use : prefix on the GPU : prefix in CPU memory. The "
        "better third of each round goes on to more runs; where there were few runs, luck is much of the difference.\n",
        "dim",
    )


def gains(gain: Gain | None, objective: Objective, *, trace: bool = False) -> Iterator[RenderableType]:
    """Yield the held-out figures, if there are any. ``trace`` means that all runs have the same requests."""
    if gain is None:
        return
    runs = "new runs of the trace" if trace else "new runs, with requests that the search has not seen"
    table = Sheet(f"The best of them again, in {len(gain.seeds)} {runs}", "", BASELINE, "found", "change")
    for each, column in COLUMNS.items():
        change = gain.changes[each.value]
        table.add(
            column.title, f"{change.baseline:,.{column.digits}f}", f"{change.winner:,.{column.digits}f}",
            share(change.change, change.margin), style="bold" if each is objective else "",
        )  # fmt: skip
    yield table
    yield Prose("")


def sentence(objective: Objective, winner: str, runs: int, gain: Gain | None, *, trace: bool = False) -> str:
    """Return the expected gain, in a sentence or two."""
    what = COLUMNS[objective].title.partition(" (")[0]
    if gain is None:
        return f"In {runs} simulations nothing had a better {what} than {BASELINE}: keep that."
    change = gain.changes[objective.value]
    runs_of = f"{len(gain.seeds)} simulated runs" + (" of this trace" if trace else " that the search has not seen")
    by = f"{abs(change.change):.1%} ± {change.margin:.1%}"
    if gain.proven:
        way = "rise" if change.change > 0 else "fall"
        return f"Expect {what} to {way} by {by} with {winner} instead of {BASELINE} (95% interval, over {runs_of})."
    by = share(change.change, change.margin)
    return (
        f"{winner} was the best in the search, but in {runs_of} it changes {what} by {by} (95% interval), which may be "
        f"chance: keep {BASELINE}."
    )


def share(change: float, margin: float) -> str:
    """Format a share as percent, with the margin."""
    return f"{change:+.1%} ± {margin:.1%}"
