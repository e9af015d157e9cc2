"""Where else the connector works: by its name alone, beside another connector, and with other KV."""

from __future__ import annotations

import os
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.vllm.engine import engine
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


def test_it_is_known_by_name_and_takes_a_place_beside_another_connector(
    model: Path, expected: Expected, installed: None
) -> None:
    chunk = 512
    ours = {
        "kv_connector": "KVEngineConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"max_local_cpu_size": 0.05, "chunk_size": chunk},
    }
    stores_only = {**ours, "kv_role": "kv_producer"}
    with engine(
        model,
        {"connectors": [stores_only, ours]},
        transfer={"kv_connector": "MultiConnector", "kv_connector_module_path": None},
        enable_prefix_caching=True,
    ) as tested:
        for name in ("single", "few", "lengths"):
            assert tokens(tested, name) == expected[name], f"{name}, cold"
            tested.settle()
            tested.forget_gpu()
            assert tokens(tested, name) == expected[name], f"{name}, from host memory"
        assert tested.metric("vllm:external_prefix_cache_hits") >= kept(600, chunk)


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
