"""The connector works by its name alone, beside another connector, and with other KV."""

from __future__ import annotations

import os
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.vllm.ahead import Ahead, Make
from tests.vllm.apart import Apart
from tests.vllm.engine import Engine, engine
from tests.vllm.probe import NO_MEMORY
from tests.vllm.scenarios import SCENARIOS, Expected, kept, tokens

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the package's entry points as pip would, and put the package on the path of every process."""
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
        point.load()()  # this process has already looked for plugins; its child processes look by themselves


def test_it_is_known_by_name_and_takes_a_place_beside_connectors_of_others(
    model: Path, expected: Expected, installed: None, tmp_path: Path
) -> None:
    """One of vLLM's own connectors keeps KV in files, which are read for KV that is not in memory."""
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
    loads_only = {**ours, "kv_role": "kv_consumer"}  # the other connector comes first, and has nothing to load
    with engine(
        model,
        {"connectors": [loads_only, ours, files]},
        transfer={"kv_connector": "MultiConnector", "kv_connector_module_path": None},
        enable_prefix_caching=True,
    ) as tested:

        def loaded() -> tuple[float, float]:
            """Return the tokens from our memory and from the other connector's files; check the answers."""
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


def test_keys_and_values_of_one_byte(ahead: Ahead) -> None:
    """The tokens are compared with those of an engine without the connector."""
    plain, tested = ahead["one byte, plain"].results(), ahead["one byte"].results()
    assert tested.rounds == plain.rounds * 2, "cold, and from host memory"
    assert tested.hits == sum(kept(len(prompt), 256) for name in ONE_BYTE for prompt in SCENARIOS[name].prompts)
    assert tested.compared > 0
    assert tested.different == 0


def test_without_any_host_memory_it_serves_and_logs_one_error(ahead: Ahead, expected: Expected) -> None:
    tested = ahead["no memory"].results()
    assert tested.rounds == [{name: expected[name] for name in NO_MEMORYS}] * 2
    assert tested.hits == 0
    assert set(tested.series.values()) == {0}, f"no tier, no store, no error, nothing held: {tested.series}"
    errors = [line for line in tested.log.splitlines() if " ERROR " in line or line.startswith("Traceback")]
    assert len(errors) == 1, errors
    assert "kvengine: nothing is kept in host memory: 268,173,312 bytes of host memory cannot be had" in errors[0]


ONE_BYTE, NO_MEMORYS = ["few", "lengths"], ["few", "lengths", "single"]
BYTES = {"kv_cache_dtype": "fp8", "enable_prefix_caching": True}
AHEAD: dict[str, Make] = {
    "one byte, plain": lambda model, _: Apart(model, ONE_BYTE, **BYTES),
    "one byte": lambda model, _: Apart(
        model, ONE_BYTE, rounds=2, offload={"max_local_cpu_size": 0.05, "verify": True}, probed=True, **BYTES
    ),
    "no memory": lambda model, _: Apart(
        model, NO_MEMORYS, rounds=2, offload={"max_local_cpu_size": 0.25}, probed=True, enable_prefix_caching=True,
        transfer={"kv_load_failure_policy": "fail"}, environment={NO_MEMORY: "1"},
    ),
}  # fmt: skip
