"""A fleet small enough for a test: engines of few blocks, prompts of few tokens."""

from __future__ import annotations

from random import Random

from epp.lab.engine.preset import Preset, Timing
from epp.lab.fleet.fleet import Fleet
from epp.lab.fleet.policies import choose, plan_of
from epp.lab.fleet.prompts import Ask, PromptPart
from epp.lab.fleet.record import Record

SMALL = Preset(
    name="small",
    model="m",
    timing=Timing(overhead_s=2e-3, weights_s=4e-3, token_s=1e-5, prefill_pair_s=1e-9, decode_context_s=1e-8),
    gpu_blocks=128,
    cpu_blocks=256,
    kv_bytes_per_token=1000,
    load_bytes_per_s=1e9,
    store_bytes_per_s=1e9,
    block_tokens=16,
    max_num_seqs=16,
    max_batched_tokens=512,
    max_model_len=2048,
)


def asks(count: int = 60, *, groups: int = 6, system: int = 640, question: int = 64, output: int = 32) -> list[Ask]:
    """Return requests of some groups, each group with its own prompt, in a fixed shuffled order."""
    made = [Ask((PromptPart(n % groups, system), PromptPart(1000 + n, question)), output) for n in range(count)]
    Random(5).shuffle(made)
    return made


def fleet(policy: str = "tiered", *, endpoints: int = 3, seed: int = 1, preset: Preset = SMALL) -> Fleet:
    return Fleet(preset, [plan_of(choose(policy), preset, seed)], endpoints, seed)


def history(records: list[Record]) -> list[tuple[object, ...]]:
    """Return everything that happened to each request, without the random ids of picks."""
    return [
        (r.ask, r.arrived_at, r.endpoint, r.admitted_at, r.first_at, r.ended_at, r.hits, r.predicted_tokens)
        for r in records
    ]
