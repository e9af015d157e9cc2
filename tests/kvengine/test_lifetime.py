"""Shutdown and emptying by hand, and the entry point that vLLM looks for."""

from __future__ import annotations

import gc
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import kvengine
from kvengine import lifetime

ROOT = Path(__file__).parents[2]


class Half:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def clear(self) -> None:
        self.calls.append("clear")

    def shutdown(self) -> None:
        self.calls.append("shutdown")


def test_everything_that_lives_in_this_process_is_cleared_and_shut_down() -> None:
    halves = [Half(), Half()]
    for half in halves:
        lifetime.register(half)
    assert kvengine.clear() == 2
    assert kvengine.shutdown() == 2
    assert [half.calls for half in halves] == [["clear", "shutdown"]] * 2
    halves.clear()
    del half
    gc.collect()
    assert kvengine.clear() == 0, "parts that were collected are gone"


def test_the_entry_point_that_vllm_calls_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["vllm.general_plugins"]
    assert points == {"kvengine": "kvengine.plugin:register"}
    register = EntryPoint("kvengine", points["kvengine"], "vllm.general_plugins").load()
    assert callable(register)
