"""The values file of llm-d v0.4's guide "Offloading Prefix Cache to CPU Memory", from its arguments to a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from epp.commandline import cli
from epp.config.wiring.build import plan_from
from epp.scrape.reading.specs import VLLM, EngineSpecs
from epp.server.options import ServeOptions

EXAMPLE = Path(__file__).parents[3] / "manifests" / "config" / "tiered-v0.4.yaml"


def values() -> dict[str, object]:
    """The picker's part of the guide's file, with our copy of its configuration."""
    return {
        "flags": {"kv-cache-usage-percentage-metric": "vllm:kv_cache_usage_perc"},
        "pluginsConfigFile": "custom-plugins.yaml",
        "pluginsCustomConfig": {"custom-plugins.yaml": EXAMPLE.read_text()},
    }


def arguments(folder: Path) -> list[str]:
    """Return the arguments that the chart v1.2.0-rc.1 makes of the values, which it also mounts."""
    said = msgspec.convert(values(), dict[str, str | dict[str, str]])
    for name, text in dict(said["pluginsCustomConfig"]).items():
        (folder / name).write_text(text)
    chart = ["--pool-name", "llm-d-infpool", "--pool-namespace", "llm-d-pfc-cpu", "--zap-encoder", "json"]
    file = ["--config-file", str(folder / str(said["pluginsConfigFile"]))]
    flags = [word for name, value in dict(said["flags"]).items() for word in (f"--{name}", value)]
    return ["serve", *chart, *file, *flags]


def test_the_seeds_values_file_runs_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[ServeOptions] = []
    program = ModuleType("epp.server.command")
    program.run_serve = got.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "epp.server.command", program)
    assert cli.main(arguments(tmp_path)) == 0
    options = got[0]
    plan = plan_from(options.config.file, options.config.inline, metrics_source=options.metrics_source)
    assert [(scorer.name, weight) for scorer, weight in plan.profile.scorers] == [
        ("queue-scorer", 2.0),
        ("kv-cache-utilization-scorer", 2.0),
        ("gpu-prefix-cache-scorer", 1.0),
        ("cpu-prefix-cache-scorer", 1.0),
    ]
    assert plan.scrape is not None
    assert plan.scrape.engines == EngineSpecs(default=VLLM)
    assert [warning for warning in plan.warnings if "deprecated" in warning] == [
        "apiVersion: inference.networking.x-k8s.io/v1alpha1 is deprecated; write llm-d.ai/v1alpha1"
    ]
