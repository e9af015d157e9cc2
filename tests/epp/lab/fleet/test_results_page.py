"""The figures of the policies on the page are those of the results."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
FIGURE = re.compile(r"[+−]?[\d.]+ ± [\d.]+(?: %)?")


def test_every_figure_with_an_interval_is_in_the_results() -> None:
    page = (ROOT / "docs" / "simulator.md").read_text().partition("\n## Results\n")[2]
    results = (ROOT / "benchmarks" / "results" / "simulate.md").read_text()
    figures = FIGURE.findall(page)
    assert len(figures) > 30
    assert [figure for figure in figures if figure.replace("−", "-") not in results] == []
