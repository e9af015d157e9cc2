"""``vllm serve``, configured as for LMCache: its log, its adapters, and what is left after it was killed.

Of the first server, only the engine's process is killed; of the second one, all processes at once.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.vllm.adapter import make_adapter
from tests.vllm.ahead import Ahead, Make
from tests.vllm.engine import BLOCK_TOKENS, PATIENCE_S
from tests.vllm.scenarios import SCENARIOS, Expected, kept
from tests.vllm.serving import Server, server

CHUNK = 256
MEBIBYTES = 51.2
ADAPTERS = ("one", "two")
STEP = 512
"""Tokens of one step; longer prompts are computed and stored in several steps."""
STORING = re.compile(r"Storing KV cache for (\d+) out of (\d+) tokens for request (\S+)")
ASKED = re.compile(r"Reqid: (\S+), Total tokens (\d+), kvengine hit tokens: (\d+), need to load: (\d+)")
MEMORY = re.compile(
    r"host memory for KV: per worker ([\d.]+) GiB \(([\d,]+) bytes, ([\d,]+) blocks\); per instance of 1 worker "
    r"([\d.]+) GiB \(([\d,]+) bytes, ([\d,]+) blocks of 32 tokens\), in chunks of 256 tokens"
)


def named_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def nothing_is_left(before: set[str]) -> None:
    assert not {name for name in named_memory() - before if "kvengine" in name or "tierwise" in name}


def unanswered(served: Server) -> None:
    with suppress(OSError, HTTPException):
        served.generate([[7] * 500] * 8, 3000)


@pytest.fixture(scope="module")
def before(ahead: Ahead) -> set[str]:
    return ahead.shared_memory


@pytest.fixture(scope="module")
def served(ahead: Ahead) -> Iterator[Server]:
    found: Server = ahead["served"]
    yield found
    ahead.end("served")


def serve(model: Path, folder: Path) -> AbstractContextManager[Server]:
    (folder / "cpu-offload.yaml").write_text(
        f"chunk_size: 64\nlocal_cpu: true\nmax_local_cpu_size: {MEBIBYTES / 1024}\n"
    )
    adapters = [f"{name}={make_adapter(folder / name, seed)}" for seed, name in enumerate(ADAPTERS)]
    environment = {
        "LMCACHE_USE_EXPERIMENTAL": "True",
        "LMCACHE_CHUNK_SIZE": str(CHUNK),  # the environment takes precedence
        "LMCACHE_CONFIG_FILE": str(folder / "cpu-offload.yaml"),
    }
    options = ("--max-num-batched-tokens", str(STEP), "--enable-lora", "--max-loras", "3", "--max-lora-rank", "8")
    return server(model, {}, environment, *options, "--lora-modules", *adapters)


AHEAD: dict[str, Make] = {"served": serve}


def test_the_size_of_memory_is_logged_in_three_units(served: Server) -> None:
    (line,) = (line for line in served.lines if "] kvengine: host memory for KV" in line)
    found = MEMORY.search(line)
    assert found, line
    each_gib, each_bytes, each_blocks, all_gib, all_bytes, all_blocks = (
        float(number.replace(",", "")) for number in found.groups()
    )
    block_bytes = BLOCK_TOKENS * 3 * 2 * 2 * 32 * 4  # layers, keys and values, heads, head size, float32
    assert each_blocks * block_bytes == each_bytes
    assert MEBIBYTES * 2**20 - CHUNK / BLOCK_TOKENS * block_bytes < each_bytes <= MEBIBYTES * 2**20
    assert each_gib == round(each_bytes / 2**30, 2)
    assert (all_gib, all_bytes, all_blocks) == (each_gib, each_bytes, each_blocks), "there is one worker"
    assert "kv_load_failure_policy" not in "".join(line for line in served.lines if "WARNING" in line)


def test_each_request_is_a_line_and_so_is_each_store(served: Server, expected: Expected) -> None:
    (prompt,) = SCENARIOS["single"].prompts
    chunks = kept(len(prompt), CHUNK)
    for answer in ("cold", "from host memory"):
        assert served.generate([prompt], 8) == expected["single"], answer
        served.settle()
        served.reset(external=False)
    lines = [found.groups() for found in ASKED.finditer(served.log()) if found.group(2) == "600"]
    assert [(int(total), int(hit), int(load)) for _, total, hit, load in lines] == [(600, 0, 0), (600, chunks, chunks)]
    cold, again = lines[0][0], lines[1][0]
    assert cold.startswith("cmpl-")
    assert cold != again
    stores = [(int(stored), int(total), name) for stored, total, name in STORING.findall(served.log())]
    assert stores == [(chunks, 600, cold)], "the second time there is nothing new"
    (long,) = SCENARIOS["few"].prompts[:1]
    served.generate([long + prompt], 1)
    served.settle()
    sums = [(int(stored), int(total)) for stored, total, _ in STORING.findall(served.log())[1:]]
    assert sums == [(STEP, 1300), (STEP, 1300), (CHUNK, 1300)], "step by step"


def test_the_metrics_page_agrees_with_the_log(served: Server) -> None:
    chunks = kept(600, CHUNK)
    assert served.series("kvengine:lookup_hit_tokens_total", engine="0", model_name="base") == chunks
    assert served.series("kvengine:stored_tokens_total") == chunks + 1280
    assert served.series("kvengine:tier_capacity_tokens", tier="cpu") > 10_000
    assert served.series("vllm:prompt_tokens_cached_by_source_total", source="host") == chunks
    first, all_of_it = (served.series(f"kvengine:arena_{name}_seconds") for name in ("first_ready", "ready"))
    assert 0 < first <= all_of_it
    assert served.series("kvengine:arena_pin_seconds") == 0, "nothing is pinned without a device"
    assert "of host memory ready after" in served.log()
    served.reset(external=True)
    served.settle()
    assert served.series("kvengine:tier_resident_tokens", tier="cpu") == 0, "forgotten by HTTP"


def test_adapters_and_the_model_have_their_own_kv(served: Server, expected: Expected) -> None:
    (prompt,) = SCENARIOS["single"].prompts
    alone = {}
    for name in ("base", *ADAPTERS):  # with nothing in either cache
        served.reset(external=True)
        alone[name] = served.generate([prompt], 8, model=name)
        served.settle()
    assert alone["base"] == expected["single"]
    assert len({tuple(answer) for (answer,) in alone.values()}) == 3, "all three answers differ"
    served.reset(external=True)
    loaded = []
    for name in ("base", *ADAPTERS, *ADAPTERS, "base"):
        before = served.series("kvengine:lookup_hit_tokens_total")
        assert served.generate([prompt], 8, model=name) == alone[name], name
        served.settle()
        served.reset(external=False)
        loaded.append(served.series("kvengine:lookup_hit_tokens_total") - before)
    chunks = kept(600, CHUNK)
    assert loaded == [0, 0, 0, chunks, chunks, chunks]


def test_a_server_whose_engine_is_killed_ends_and_leaves_nothing(served: Server, before: set[str]) -> None:
    members = served.members()
    (core,) = (member for member, name in members.items() if name.startswith("VLLM::EngineCor"))
    maps = [Path(f"/proc/{member}/maps").read_text() for member in members]
    assert not any("kvengine" in line and "/dev/shm" in line for each in maps for line in each.splitlines())
    os.kill(core, signal.SIGKILL)  # neither its worker, which has the memory, nor the server is notified
    assert served.process.wait(PATIENCE_S) is not None
    served.wait_until_gone()
    nothing_is_left(before)


def test_the_next_one_starts_as_if_there_had_been_none(model: Path, expected: Expected, before: set[str]) -> None:
    """The server is a producer, and all of it is killed at once in the middle of its work."""
    transfer = {"kv_role": "kv_producer", "kv_load_failure_policy": "fail"}
    with server(model, transfer, {"KVENGINE_NUM_CPU_BLOCKS": "80"}) as second:
        for _ in range(2):
            for name in ("few", "single"):
                scenario = SCENARIOS[name]
                assert second.generate(scenario.prompts, scenario.max_tokens) == expected[name], name
            second.settle()
            second.reset(external=False)
        assert "80 blocks of 32 tokens" in second.log()
        assert second.series("kvengine:stored_tokens_total") >= 4 * 512
        assert second.series("kvengine:lookup_hit_tokens_total") == 0, "a producer loads nothing"
        (warning,) = (line for line in second.lines if "kv_load_failure_policy" in line and "WARNING" in line)
        assert "kv_load_failure_policy fail: a load that fails fails its request; recompute computes it" in warning
        work = threading.Thread(target=unanswered, args=(second,))
        work.start()
        while second.series("vllm:num_requests_running") == 0:
            assert work.is_alive()
        second.kill()
        second.wait_until_gone()
        work.join()
    nothing_is_left(before)
