"""Where else the connector works: by its name alone, beside another connector, and with other KV."""

from __future__ import annotations

import os
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.vllm.engine import Engine, engine, series
from tests.vllm.probe import NO_MEMORY
from tests.vllm.scenarios import Expected, kept, tokens

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's entry points, as pip would write them, and the package on the path of every process."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = tmp_path / "tierwise-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tierwise\nVersion: 0\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), str(ROOT), before))))
    for point in entry_points(group="vllm.general_plugins", name="kvengine"):
        point.load()()  # this process has looked for plugins before; those that it starts look by themselves


def test_it_is_known_by_name_and_takes_a_place_beside_connectors_of_others(
    model: Path, expected: Expected, installed: None, tmp_path: Path
) -> None:
    """Beside one of vLLM's own, which keeps KV in files; what is nowhere in memory comes from there."""
    chunk, names = 512, ("single", "other")
    ours = {
        "kv_connector": "KVEngineConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"max_local_cpu_size": 0.05, "chunk_size": chunk},
    }
    files = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "kv")},
    }
    loads_only = {**ours, "kv_role": "kv_consumer"}  # it comes first, and has nothing to load
    with engine(
        model,
        {"connectors": [loads_only, ours, files]},
        transfer={"kv_connector": "MultiConnector", "kv_connector_module_path": None},
        enable_prefix_caching=True,
    ) as tested:

        def loaded() -> tuple[float, float]:
            """Tokens from our memory, and from the other's files; the answers are checked."""
            before = by_source(tested)
            for name in names:
                assert tokens(tested, name) == expected[name], name
            after = by_source(tested)
            tested.settle()
            return after[0] - before[0], after[1] - before[1]

        assert loaded() == (0, 0), "cold"
        tested.forget_gpu()
        assert loaded() == (2 * kept(600, chunk), 0), "from host memory"
        tested.llm.reset_prefix_cache(reset_connector=True)
        from_files = loaded()
        assert from_files[0] == 0, "forgotten"
        assert from_files[1] >= 2 * 512, "from files"


def by_source(tested: Engine) -> tuple[float, float]:
    name = "vllm:prompt_tokens_cached_by_source"
    return tested.metric(name, source="host"), tested.metric(name, source="external_unspecified")


def test_keys_and_values_of_one_byte(model: Path) -> None:
    options = {"kv_cache_dtype": "fp8", "enable_prefix_caching": True}
    with engine(model, **options) as plain:
        expected = {name: tokens(plain, name) for name in ("few", "lengths")}
    with engine(model, {"max_local_cpu_size": 0.05, "verify": True}, probed=True, **options) as tested:
        for name, answers in expected.items():
            assert tokens(tested, name) == answers, f"{name}, cold"
            tested.settle()
            tested.forget_gpu()
            assert tokens(tested, name) == answers, f"{name}, from host memory"
        ((compared, different),) = tested.ask("kv_bytes")
        assert compared > 0
        assert different == 0


def test_without_any_host_memory_it_serves_and_says_so_once(
    model: Path, expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NO_MEMORY, "1")
    log = tmp_path / "log"
    transfer = {"kv_load_failure_policy": "fail"}
    with engine(
        model, {"max_local_cpu_size": 0.25}, probed=True, transfer=transfer, log=log, enable_prefix_caching=True
    ) as tested:
        for _ in range(2):
            for name in ("few", "lengths", "single"):
                assert tokens(tested, name) == expected[name], name
            tested.settle()
            tested.forget_gpu()
        assert tested.metric("vllm:external_prefix_cache_hits") == 0
        for what in ("tier_capacity_tokens", "tier_resident_tokens", "tier_pinned_tokens"):
            assert series(f"kvengine:{what}", tier="cpu") == 0, what
        assert series("kvengine:failed_jobs_total", direction="store") == 0, "none was begun"
        assert series("kvengine:internal_errors_total") == 0
        assert series("kvengine:tier_pinned_tokens", tier="gpu") == 0
    errors = [line for line in log.read_text().splitlines() if "ERROR" in line or "Traceback" in line]
    assert len(errors) == 1, errors
    assert "nothing is kept in host memory: 268,173,312 bytes of host memory cannot be had" in errors[0]
