"""Writes ``docs/charts-differences.md``: what upstream's charts and ours render from the same values.

    python -m tests.charts.compare

Upstream's charts come out of the zips of their Go modules, in Go's own cache; helm renders both.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.charts import upstream
from tests.charts.differences import ABSENT, Difference, differences
from tests.charts.guides import FEATURES, GUIDES, Guide
from tests.charts.helm import CHARTS, objects
from tests.charts.reasons import reason
from tests.cluster.environment import Unavailable

PAGE = Path(__file__).parents[2] / "docs" / "charts-differences.md"
LONGEST = 64
"""Characters of a value in a cell; of a longer one the beginning is shown."""
INTRODUCTION = """\
# What the charts render differently

The charts `inferencepool` and `standalone` of Tierwise, and upstream's, rendered with the same values: those of the
guides, and some more. Each row is a field of an object, or an object, that is not the same; an en dash stands for
one that is absent. `python -m tests.charts.compare` writes this page, and a test compares it with the charts.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found: the versions in which each difference is, and values that upstream's chart cannot render."""

    found: dict[Difference, set[str]]
    failed: dict[str, str]


def version_for(guide: Guide) -> str | None:
    """Return which version of upstream's chart the values are for; None if it is not obtainable."""
    first = guide.files[0]
    return None if first.startswith("router") else "v1.2.0" if first.startswith("v0.4") else "v1.5.0"


def compared(folder: Path) -> Outcome:
    """Render all values with both charts, upstream's copied into ``folder``. Raises: Unavailable."""
    outcome = Outcome(defaultdict(set), {})
    for guide in (*GUIDES, *FEATURES):
        if (version := version_for(guide)) is None:
            continue
        chart = upstream.chart(guide.chart, version, folder)
        ours = objects(CHARTS / guide.chart, *guide.arguments)
        try:
            theirs = objects(chart, *guide.arguments)
        except AssertionError as refused:
            outcome.failed[guide.name] = next(line for line in str(refused).splitlines() if line)
            continue
        for each in differences(theirs, ours):
            outcome.found[each].add(version)
    return outcome


def page(outcome: Outcome) -> str:
    """Return the page as Markdown."""
    parts = [INTRODUCTION, "## Field by field\n", *_table(outcome), "", "## Values that upstream cannot render\n"]
    parts += [f"- {name}: helm fails in upstream's own template." for name in outcome.failed]
    parts += ["", "## Not compared\n"]
    parts += [f"- {what}:\n  {why}." for what, why in upstream.NOT_OBTAINABLE.items()]
    parts += ["- Values of the tree `router`: their charts are in the module that is not there."]
    return "\n".join(parts) + "\n"


def _table(outcome: Outcome) -> Iterator[str]:
    yield "| object | field | upstream | here | version | why |"
    yield "|---|---|---|---|---|---|"
    rows: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for each, versions in outcome.found.items():
        why = reason(each)
        assert why, f"no reason in tests/charts/reasons.py for {each}"
        name = "" if each.path else f" {each.name}"
        rows[f"{each.kind}{name}", each.path, _cell(each.theirs), _cell(each.ours), why.why] |= versions
    for (what, path, theirs, ours, why), versions in sorted(rows.items()):
        yield f"| {what} | {_code(_short(path))} | {theirs} | {ours} | {', '.join(sorted(versions))} | {why} |"


def _short(path: str) -> str:
    return path.replace("spec.template.spec.", "…")


def _cell(text: str) -> str:
    if text in (ABSENT, "present"):
        return text
    if "\n" in text or len(text) > LONGEST:
        return f"{_code(text.splitlines()[0][:LONGEST])} …"
    return text if text.startswith("map of ") else _code(text)


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""


def main() -> int:
    """Write the page, or say what is missing."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            PAGE.write_text(page(compared(Path(folder))))
    except Unavailable as missing:
        print(f"the charts cannot be compared: {missing}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
