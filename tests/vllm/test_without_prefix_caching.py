"""One engine that caches no prefixes itself and has no checksums: wrong bytes in host memory change its tokens.

The tests share the engine and run in this order; the last ones break its copier and take its memory away.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vllm.engine import Engine, engine, series
from tests.vllm.scenarios import SCENARIOS, Expected, kept, tokens

CHUNK = 32


@pytest.fixture(scope="module")
def tested(model: Path, expected: Expected) -> Iterator[Engine]:
    with engine(
        model, {"max_local_cpu_size": 0.05, "chunk_size": CHUNK}, probed=True, enable_prefix_caching=False
    ) as started:
        started.settle()  # wait until host memory is ready
        yield started


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_second_pass_comes_from_host_memory(tested: Engine, expected: Expected, name: str) -> None:
    before = tested.metric("vllm:external_prefix_cache_hits")
    assert tokens(tested, name) == expected[name], "cold"
    tested.settle()
    assert tokens(tested, name) == expected[name], "from host memory"
    held = sum(kept(len(prompt), CHUNK) for prompt in SCENARIOS[name].prompts)
    assert tested.metric("vllm:external_prefix_cache_hits") - before >= held
    ((compared, different),) = tested.ask("kv_bytes")
    assert compared > 0
    assert different == 0


def test_one_byte_that_flips_in_memory_is_seen_in_the_tokens(tested: Engine, expected: Expected) -> None:
    """This shows that the other tests would notice a byte that was copied to a wrong place, or not at all."""
    layers, layer_bytes = 3, 2 * CHUNK * 64 * 4  # the bytes of a block: heads, tokens, keys and values, float32
    seen = 0
    for layer in range(layers):
        for part in (3, 8 * 4 + 3, layer_bytes // 2 + 40 * 4 + 3):  # the byte that holds most of the exponent
            offset = layer * layer_bytes + part
            assert tested.ask("kv_flip", offset)[0] > 0
            seen += tokens(tested, "single") != expected["single"]
            tested.ask("kv_flip", offset)
    assert seen >= 2 * layers
    assert tokens(tested, "single") == expected["single"], "flipped back"


def test_a_copier_whose_threads_die_leaves_the_engine_serving(tested: Engine, expected: Expected) -> None:
    tested.ask("kv_faults", load="die")
    assert tokens(tested, "few") == expected["few"], "its loads never ran"
    tested.ask("kv_faults")
    before = tested.metric("vllm:external_prefix_cache_hits")
    assert tokens(tested, "few") == expected["few"], "stored again, and no thread to load"
    assert tokens(tested, "single") == expected["single"]
    tested.ask("kv_faults", store="die")
    for name in ("few", "single", "lengths"):
        assert tokens(tested, name) == expected[name]
    tested.ask("kv_faults")
    assert tested.metric("vllm:external_prefix_cache_hits") >= before
    tested.settle()
    assert series("kvengine:failed_jobs_total", direction="load") > 0
    assert series("kvengine:failed_jobs_total", direction="store") > 0
    assert series("kvengine:tier_pinned_tokens", tier="cpu") == 0
    assert series("kvengine:tier_pinned_tokens", tier="gpu") == 0


def test_a_worker_whose_memory_is_taken_back_by_hand_serves_on(tested: Engine, expected: Expected) -> None:
    assert tested.ask("kv_close") == [1]
    for name in ("few", "single"):
        assert tokens(tested, name) == expected[name]
