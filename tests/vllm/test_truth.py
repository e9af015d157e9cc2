"""The engine's reports about its tiers are true: metrics, events, and the report in a response."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epp.kvevents.follower.decoding import Batch, BlockRemoved, BlockStored, decode, hash_of
from tests.vllm.engine import BLOCK_TOKENS, Engine, engine, prompts, series
from tests.vllm.recording import CHUNK, GPU_BLOCKS, Addresses, addresses, published, record


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Addresses:
    return addresses(tmp_path_factory.mktemp("events"))


@pytest.fixture(scope="module")
def events(where: Addresses) -> Iterator[Any]:
    import zmq

    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(where.events)
    socket.subscribe(b"")
    yield socket
    socket.close(0)


@pytest.fixture(scope="module")
def before() -> float:
    return time.time()


@pytest.fixture(scope="module")
def tested(model: Path, before: float, where: Addresses, events: Any) -> Iterator[Engine]:
    small = {"num_cpu_blocks": 64, "chunk_size": CHUNK}  # 32 chunks of 64 tokens
    with engine(
        model, small, enable_prefix_caching=True, num_gpu_blocks_override=GPU_BLOCKS, max_model_len=1024,
        kv_events_config=published(where),
    ) as started:  # fmt: skip
        for seed in range(1000, 1100):  # a subscriber needs a moment; host memory keeps nothing so short
            started.generate(prompts(1, 40, seed=seed), 1)
            if events.poll(100):
                break
        yield started


def test_gauges_counters_and_horizons_say_what_happened(tested: Engine, before: float) -> None:
    for tier, tokens in (("gpu", (GPU_BLOCKS - 1) * BLOCK_TOKENS), ("cpu", 64 * BLOCK_TOKENS)):
        tested.generate(prompts(1, 200, seed=99))
        assert series("kvengine:tier_capacity_tokens", tier=tier) == tokens
        assert series("kvengine:tier_eviction_horizon_timestamp_seconds", tier=tier) == 0
    tested.generate(prompts(1, 20, seed=98))  # one step later, the scheduler knows that the store has ended
    assert series("kvengine:stored_tokens_total") == 3 * CHUNK
    assert series("kvengine:tier_resident_tokens", tier="cpu") == 3 * CHUNK
    assert series("kvengine:tier_pinned_tokens", tier="cpu") == 0
    assert before < series("kvengine:start_timestamp_seconds") < time.time()
    before_s = time.time()
    assert before_s <= series("kvengine:clock_timestamp_seconds") <= time.time(), "that of the page, not of a step"
    tested.forget_gpu()
    tested.generate(prompts(1, 200, seed=99))
    assert series("kvengine:lookup_hit_tokens_total") == 3 * CHUNK
    assert series("kvengine:copied_bytes_total", direction="load") > 0
    assert series("kvengine:tier_eviction_horizon_timestamp_seconds", tier="gpu") > 0
    assert series("kvengine:tier_eviction_horizon_timestamp_seconds", tier="cpu") == 0
    for seed in range(12):
        tested.generate(prompts(1, 700, seed=seed))
    tested.generate(prompts(1, 20, seed=97))
    assert series("kvengine:tier_resident_tokens", tier="cpu") == 32 * CHUNK
    evicted = series("kvengine:evicted_tokens_total")
    assert evicted == series("kvengine:stored_tokens_total") - 32 * CHUNK > 0
    assert series("kvengine:tier_eviction_horizon_timestamp_seconds", tier="cpu") > 1.7e9
    for tier, block in (("gpu", BLOCK_TOKENS), ("cpu", CHUNK)):
        left = series("kvengine:tier_horizon_resident_tokens", tier=tier)
        assert 0 <= left < 716, "of one prompt of 700 tokens, and what was made of it"
        assert left % block == 0
    assert series("kvengine:failed_jobs_total", direction="load") == 0


def test_replayed_events_agree_with_the_gauges(tested: Engine, events: Any) -> None:
    """The events cover the test above, and a reset."""
    tested.llm.reset_prefix_cache(reset_connector=True)
    tested.settle()
    assert series("kvengine:tier_resident_tokens", tier="cpu") == 0
    parents: dict[bytes, bytes | None] = {}
    most = stored = 0
    while not stored or parents:
        for event in cpu_events(events, until=1):
            if event["type"] == "BlockStored":
                (key,), parent = event["block_hashes"], event["parent_block_hash"]
                assert key not in parents, "stored twice"
                assert parent is None or parent in parents, "a child before its parent"
                parents[key] = parent
                stored, most = stored + 1, max(most, len(parents))
                continue
            for key in event["block_hashes"]:
                assert key not in parents.values(), "a parent goes before its child"
                del parents[key]
    assert most == 32, "as many as there are slots"
    assert stored == series("kvengine:stored_tokens_total") / CHUNK


def test_events_tell_what_can_be_loaded_and_the_response_what_was(tested: Engine, events: Any) -> None:
    from vllm import SamplingParams

    sent = prompts(1, 300, seed=5005)
    tested.generate(sent)
    tested.settle()
    stored_events = cpu_events(events, until=4)
    assert [event["type"] for event in stored_events] == ["BlockStored"] * 4
    assert [event["token_ids"] for event in stored_events] == [sent[0][n * CHUNK : (n + 1) * CHUNK] for n in range(4)]
    assert [event["block_size"] for event in stored_events] == [CHUNK] * 4
    parents = [event["parent_block_hash"] for event in stored_events]
    assert parents == [None, *(event["block_hashes"][0] for event in stored_events[:3])]

    tested.forget_gpu()
    sampling = SamplingParams(
        temperature=0, max_tokens=4, detokenize=False, extra_args={"kv_transfer_params": {"kvengine_report": True}}
    )
    (answer,) = tested.llm.generate([{"prompt_token_ids": sent[0]}], sampling, use_tqdm=False)
    assert answer.kv_transfer_params == {
        "prompt_tokens": 300,
        "cached_tokens_by_tier": {"gpu": 0, "cpu": 4 * CHUNK},
    }
    tested.llm.reset_prefix_cache(reset_connector=True)
    tested.settle()
    removed = cpu_events(events, until=1)
    assert [event["type"] for event in removed] == ["BlockRemoved"]
    stored = [event["block_hashes"][0] for event in stored_events]
    assert removed[0]["block_hashes"] == stored[::-1], "what builds upon others goes first"


def test_what_is_held_by_the_events_is_what_the_engine_finds(tested: Engine, where: Addresses) -> None:
    """The picker's decoder reads the events, for a working set that neither tier can hold."""
    recording = record(tested, where.replay)
    announced, applied = Announced(), 0
    tiers = [0, 0]
    for found in recording.found:
        for payload in recording.batches[applied : found.batches]:
            announced.apply(decode(payload))
        applied = found.batches
        gpu, cpu = announced.held("GPU", BLOCK_TOKENS, found.prompt), announced.held("CPU", CHUNK, found.prompt)
        assert (found.gpu, found.cpu) == (gpu, max(0, cpu - gpu))
        tiers = [tiers[0] + found.gpu, tiers[1] + found.cpu]
    assert min(tiers) > 0, "both tiers were found to hold something"
    assert announced.held("GPU", BLOCK_TOKENS, recording.salted[0]) == 0


class Announced:
    """Prefixes by medium, derived from events in the simplest way."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str | None, int]] = Counter()
        self.tokens: dict[tuple[int, int], tuple[int, ...]] = {}

    def apply(self, batch: Batch) -> None:
        for event in batch.events:
            if isinstance(event, BlockStored):
                size, before = event.block_size, event.parent_block_hash
                prefix = self.tokens[size, hash_of(before)] if before is not None else ()
                salt = (-1,) if before is None and event.extra_keys and event.extra_keys[0] else ()
                for n, name in enumerate(event.block_hashes):
                    prefix = (*prefix, *salt, *event.token_ids[n * size : (n + 1) * size])
                    salt = ()
                    self.tokens[size, hash_of(name)] = prefix
                    self.counts[event.medium, hash_of(name)] += 1
            elif isinstance(event, BlockRemoved):
                self.counts.subtract((event.medium, hash_of(name)) for name in event.block_hashes)
            else:
                self.counts = Counter({key: n for key, n in self.counts.items() if key[0] != "GPU"})

    def held(self, medium: str, size: int, prompt: list[int]) -> int:
        here = {self.tokens[size, name] for (of, name), n in self.counts.items() if of == medium and n > 0}
        end = 0
        while end + size < len(prompt) and tuple(prompt[: end + size]) in here:
            end += size
        return end


def cpu_events(socket: Any, until: int) -> list[dict[str, Any]]:
    """Return the next events of the CPU tier, at least ``until`` of them."""
    import msgspec

    found: list[dict[str, Any]] = []
    while len(found) < until:
        assert socket.poll(20_000), f"no more events after {found}"
        _, _, payload = socket.recv_multipart()
        _, events, *_ = msgspec.msgpack.decode(payload)
        found += [event for event in events if event.get("medium") == "CPU"]
    return found
