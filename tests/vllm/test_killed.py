"""An engine that is killed leaves nothing, and the next one starts as if there had been none.

The first one only stores, and the second one only loads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.vllm.engine import PATIENCE_S
from tests.vllm.scenarios import Expected

ROOT = Path(__file__).parents[2]


def started(model: Path, role: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.vllm.serving", str(model), role]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, start_new_session=True)


def said(process: subprocess.Popen[str], until: str) -> list[dict[str, Any]]:
    """What it says, up to the first object with ``until``."""
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        if line.startswith("{"):
            found.append(json.loads(line))
            if until in found[-1]:
                return found
    raise AssertionError(f"it ended after {found}")


def right(told: list[dict[str, Any]], expected: Expected) -> None:
    answers = [each for each in told if "scenario" in each]
    assert len(answers) == 4
    for each in answers:
        assert each["tokens"] == expected[each["scenario"]], each["scenario"]


def members(group: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def named_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def test_an_engine_that_is_killed_leaves_nothing_and_the_next_one_serves(model: Path, expected: Expected) -> None:
    before = named_memory()
    first = started(model, "kv_producer")
    try:
        told = said(first, "serving")
        right(told, expected)
        counted = next(each for each in told if "stored" in each)
        assert counted["stored"] >= 4 * 640
        assert counted["hits"] == 0, "a producer loads nothing"
        mapped = [Path(f"/proc/{member}/maps").read_text() for member in members(first.pid)]
        assert not any("kvengine" in line and "/dev/shm" in line for maps in mapped for line in maps.splitlines())
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while members(first.pid):
        assert time.monotonic() < until, "a process outlives the engine"
    assert not {name for name in named_memory() - before if "kvengine" in name or "tierwise" in name}

    second = started(model, "kv_consumer")
    try:
        told = said(second, "stored")
        right(told, expected)
        assert (told[-1]["stored"], told[-1]["hits"]) == (0, 0), (
            "a consumer stores nothing, and nothing was left for it"
        )
        assert second.wait(PATIENCE_S) == 0, "it ends by itself"
    finally:
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
            second.wait(PATIENCE_S)
    assert not members(second.pid)
