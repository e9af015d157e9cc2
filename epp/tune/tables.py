"""What was tried and what it comes to, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.table import Table

from epp.simulate.policies import Policy
from epp.tune.candidates import BASELINE
from epp.tune.gain import COLUMNS, Gain
from epp.tune.options import Objective
from epp.tune.search import Found

SHOWN = 12
"""Candidates in the table; all of them are in the file."""


def race(found: Found, by_name: Mapping[str, Policy]) -> Table:
    """The best candidates, and the baseline among them."""
    table = Table(title="What was tried, the best first", title_justify="left", title_style="bold", box=None,
                  pad_edge=False, header_style="bold")  # fmt: skip
    for title in ("", "x baseline", "seeds"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    shown = [s for n, s in enumerate(found.standings) if n < SHOWN or s.name == BASELINE]
    for standing in shown:
        baseline = standing.name == BASELINE
        title = f"{by_name[standing.name].title}{' (baseline)' if baseline else ''}"
        table.add_row(title, f"{standing.ratio:.3f}", str(len(standing.ratios)), style="bold" if baseline else "")
    if len(found.standings) > len(shown):
        table.add_row(f"and {len(found.standings) - len(shown)} more", "", "", style="dim")
    table.caption = " "
    return table


def gains(gain: Gain | None, objective: Objective) -> Iterator[RenderableType]:
    """Held-out figures; nothing where there are none."""
    if gain is None:
        return
    table = Table(title=f"On {len(gain.seeds)} seeds that the search has not seen", title_justify="left",
                  title_style="bold", box=None, pad_edge=False, header_style="bold")  # fmt: skip
    for title in ("", BASELINE, "found", "change"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for each, column in COLUMNS.items():
        change = gain.changes[each.value]
        table.add_row(
            column.title, f"{change.baseline:,.{column.digits}f}", f"{change.winner:,.{column.digits}f}",
            share(change.change, change.margin), style="bold" if each is objective else "",
        )  # fmt: skip
    table.caption = " "
    yield table


def sentence(objective: Objective, winner: str, runs: int, gain: Gain | None) -> str:
    """What to expect, in one sentence."""
    what = COLUMNS[objective].title.partition(" (")[0]
    if gain is None:
        return f"In {runs} simulations nothing was better than {BASELINE} at {what}: keep it."
    change = gain.changes[objective.value]
    expected = f"{share(change.change, change.margin)} on {len(gain.seeds)} seeds that the search has not seen"
    if gain.proven:
        return f"Expect {what} {expected}, with {winner} instead of {BASELINE} (95% interval, simulated)."
    return (
        f"{winner} was best in the search, and with {what} {expected} it is not clearly better (95% interval, "
        f"simulated): "
        f"keep {BASELINE}."
    )


def share(change: float, margin: float) -> str:
    """As percent, with the margin."""
    return f"{change:+.1%} ± {margin:.1%}"
