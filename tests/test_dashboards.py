"""Dashboards ask for metrics that exist, by labels that they have: those of the pages, which other tests check."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DASHBOARDS = sorted((ROOT / "manifests" / "dashboards").glob("*.json"))
ROW = re.compile(r"^\| `((?:llm_d_epp|tierwise)_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
NAME = re.compile(r"\b(?:llm_d_epp|tierwise)_\w+")
LABELS = re.compile(r"\bby \(([^)]*)\)")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
FIELD = re.compile(r"\{\{(\w+)\}\}")
SELECTOR = re.compile(r"\b(?:llm_d_epp|tierwise)_\w+(?:\{[^}]*\})?")
OF_THE_SCRAPE = {"instance"}
"""Labels that Prometheus adds to every series."""
REQUEST = {"model_name", "target_model_name", "fairness_id", "priority"}


def documented() -> dict[str, set[str]]:
    """Every series that a metric of the pages has, and its labels."""
    series: dict[str, set[str]] = {}
    for page in ("metrics.md", "tracing.md"):
        for name, kind, cell in ROW.findall((ROOT / "docs" / page).read_text()):
            labels = set(re.findall(r"`(\w+)`", cell)) | (REQUEST if "*request*" in cell else set())
            if kind == "histogram":
                series |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
            else:
                series[name] = labels
    return series


def panels(dashboard: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(dashboard.read_text())["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.name)
def test_every_panel_asks_for_what_exists(dashboard: Path) -> None:
    series = documented()
    for panel in panels(dashboard):
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            names = NAME.findall(target["expr"])
            assert names, panel["title"]
            assert set(names) <= series.keys(), panel["title"]
            asked = {label.strip() for labels in LABELS.findall(target["expr"]) for label in labels.split(",")}
            asked |= set(MATCHER.findall(target["expr"])) | set(FIELD.findall(target["legendFormat"]))
            assert asked <= set.union(OF_THE_SCRAPE, *(series[name] for name in names)), panel["title"]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.name)
def test_panels_have_their_own_ids_and_places(dashboard: Path) -> None:
    every = json.loads(dashboard.read_text())["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells = [
        (x, y)
        for panel in every
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.name)
def test_a_choice_of_pickers_holds_for_every_series(dashboard: Path) -> None:
    variables = {each["name"]: each for each in json.loads(dashboard.read_text())["templating"]["list"]}
    assert 'name=~"$pool"' in variables["instance"]["definition"]
    for panel in panels(dashboard):
        for target in panel["targets"]:
            for selector in SELECTOR.findall(target["expr"]):
                assert 'instance=~"$instance"' in selector, panel["title"]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.name)
def test_two_pickers_never_give_two_lines_of_one_legend(dashboard: Path) -> None:
    """A bare selector would give a line for each picker, all with the same legend."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            assert not SELECTOR.fullmatch(target["expr"]), panel["title"]


def test_there_is_a_dashboard() -> None:
    assert DASHBOARDS
