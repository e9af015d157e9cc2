"""A published figure, compared to ours."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec
from rich.console import RenderableType

from epp.printing.prose import Prose
from epp.printing.sheet import Sheet

_ROUNDED, _OFF, _WRONG = 0.011, 0.03, 0.1


class Verdict(Enum):
    """How well a published figure agrees with ours."""

    RIGHT = "right"
    ROUNDED = "rounded"
    """Within 3 %: K for both 1000 and 1024 in one product, or a rule of thumb."""
    OFF = "off"
    """Within 10 %, and not derivable from what is written beside it."""
    WRONG = "wrong"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure and the one that we compute."""

    guide: str
    what: str
    published: str
    ours: str
    ratio: float
    """Published over ours."""
    verdict: Verdict
    why: str = ""


def figure(guide: str, what: str, published: tuple[str, float], ours: tuple[str, float], why: str = "") -> Figure:
    """Return the figure, with a verdict by the distance between the two."""
    ratio = published[1] / ours[1]
    away = abs(ratio - 1)
    verdict = (
        Verdict.RIGHT
        if away <= _ROUNDED
        else Verdict.ROUNDED
        if away <= _OFF
        else Verdict.OFF
        if away <= _WRONG
        else Verdict.WRONG
    )
    return Figure(guide=guide, what=what, published=published[0], ours=ours[0], ratio=ratio, verdict=verdict, why=why)


def shown(found: list[Figure]) -> Iterator[RenderableType]:
    """Yield the figures as a table, and a summary of the verdicts."""
    columns = ("what", "guide", "published", "ours", "×", "verdict", "why")
    table = Sheet("Published capacity figures", *columns, sentences="why")
    for figure in found:
        style = "bold red" if figure.verdict is Verdict.WRONG else "yellow" if figure.verdict is Verdict.OFF else ""
        table.add(
            figure.what,
            figure.guide,
            figure.published,
            figure.ours,
            f"{figure.ratio:.2f}",
            figure.verdict.value,
            figure.why,
            style=style,
        )
    yield table
    counts = {verdict: sum(figure.verdict is verdict for figure in found) for verdict in Verdict}
    yield Prose(
        ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()) + ". × is published over ours."
    )
