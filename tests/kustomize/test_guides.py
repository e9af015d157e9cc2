"""The guides' pages without a cluster: what they name exists, and every command is run or has a reason not to be."""

from __future__ import annotations

import itertools
import re

import pytest

from epp.config.load import load_text
from epp.config.wiring.build import build as build_plan
from scorers.base import Tier
from tests.cluster.guide import GUIDES, ROOT, steps
from tests.kustomize.kubectl import MANIFESTS, build

PAGES = sorted(path.name for path in GUIDES.glob("*.md"))
EXPORT = re.compile(r"^export (\w+)=\"?([^\"#\n]*?)\"?(?: +#(.*))?$", re.MULTILINE)
PATH = re.compile(r"(?:-k|-f|<) (?:\./)?(manifests/\S+)")
CHART = re.compile(r"\$\{CHARTS\}/(\w+)")


def variables(page: str) -> dict[str, list[str]]:
    """The values of each variable: the one that is exported, and the others that its comment lists."""
    found: dict[str, list[str]] = {}
    for step in steps(GUIDES / page):
        for name, value, comment in EXPORT.findall(step.commands):
            others = comment.split(" | ") if " | " in comment else []
            found[name] = sorted({value, *(each.strip() for each in others)})
    return found


def paths(page: str) -> set[str]:
    """Every path that a command names, with every value of its variables."""
    known = variables(page)
    found = set()
    for step in steps(GUIDES / page):
        for path in PATH.findall(step.commands):
            names = re.findall(r"\$\{(\w+)\}", path)
            for values in itertools.product(*(known[name] for name in names)):
                written = path
                for name, value in zip(names, values, strict=True):
                    written = written.replace(f"${{{name}}}", value)
                found.add(written)
    return found


def test_there_is_a_page_for_each_guide() -> None:
    assert PAGES == ["cpu-offloading.md", "shared-storage.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_a_command_exists_for_every_choice(page: str) -> None:
    found = paths(page)
    assert len(found) > 3
    for path in sorted(found):
        assert (ROOT / path).exists(), path
        if (ROOT / path).is_dir() and "charts" not in path:
            assert build(ROOT / path)
    for step in steps(GUIDES / page):
        assert all((MANIFESTS / "charts" / chart / "Chart.yaml").is_file() for chart in CHART.findall(step.commands))


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_commands_is_found(page: str) -> None:
    """One that the pattern overlooks would be run by no test."""
    assert len(steps(GUIDES / page)) == (GUIDES / page).read_text().count("```bash\n")


@pytest.mark.parametrize("page", PAGES)
def test_the_guide_exports_the_version_of_the_charts(page: str) -> None:
    (version,) = variables(page)["VERSION"]
    for chart in ("inferencepool", "standalone", "modelserver"):
        assert f"version: {version}\n" in (MANIFESTS / "charts" / chart / "Chart.yaml").read_text()


def test_the_picker_of_the_guide_for_cpu_memory_weighs_both_tiers() -> None:
    import yaml

    values = yaml.safe_load((MANIFESTS / "inferencepool" / "values.yaml").read_text())["inferenceExtension"]
    plan = build_plan(load_text(values["pluginsCustomConfig"][values["pluginsConfigFile"]]))
    assert not plan.warnings
    assert plan.prefix_cache is not None
    assert [each.tier for each in plan.prefix_cache.producers] == [Tier.GPU, Tier.CPU]
    assert all(each.uses_engine_capacity for each in plan.prefix_cache.producers), "nothing is typed twice"
