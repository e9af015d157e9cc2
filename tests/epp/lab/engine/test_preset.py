"""Presets reproduce the measurements that they were set by."""

from dataclasses import replace

import pytest

from epp.lab.engine.job import Job
from epp.lab.engine.preset import DEMO, LLAMA_8B_L4, PRESETS, QWEN3_32B, Preset
from tests.epp.lab.engine.bench import Bench


def prompt(name: str, tokens: int, output_tokens: int = 1) -> Job:
    return Job(name, tuple((name, n) for n in range(tokens // 16)), tokens, output_tokens)


def test_every_preset_serves_its_longest_context() -> None:
    for preset in PRESETS.values():
        bench = Bench(preset)
        longest = preset.max_model_len - 1
        bench.serve(Job("a", tuple(range(longest // preset.block_tokens)), longest, 1))
        assert bench.engine.tally.completed == 1


def test_a_cold_prompt_on_the_l4_takes_what_was_published() -> None:
    bench = Bench(LLAMA_8B_L4)
    bench.serve(prompt("a", 15_376))
    assert bench.ttft("a") == pytest.approx(6.537, rel=0.02)


def test_qwen_decodes_six_long_contexts_as_fast_as_was_published() -> None:
    """Published: 45 clients of 8 engines, 8,000 + 256 tokens each, 1,024 output tokens in 18.4 s, prefixes cached."""
    bench = Bench(QWEN3_32B)
    for n in range(6):
        bench.submit(prompt(f"{n}", 8256, output_tokens=1024))
    bench.run()
    last = bench.finished["5"].at - bench.started["5"].at
    assert last == pytest.approx(18.4, rel=0.03)


def fraction_loaded(preset: Preset, tokens: int) -> float:
    """Return TTFT from the CPU tier over cold TTFT, both without the fixed time of a step."""
    bare = replace(preset, timing=replace(preset.timing, overhead_s=0.0, weights_s=0.0))
    bench = Bench(bare)
    bench.serve(prompt("a", tokens))
    cold = bench.ttft("a")
    bench.engine.reset_prefix_cache()
    bench.serve(replace(prompt("a", tokens), id="b"), at=1000.0)
    return bench.ttft("b") / cold


def test_the_demo_keeps_the_proportions_of_what_it_scales() -> None:
    assert fraction_loaded(DEMO, 3000) == pytest.approx(fraction_loaded(QWEN3_32B, 30_000), rel=0.1)
    real, demo = Bench(QWEN3_32B), Bench(DEMO)
    real.serve(prompt("a", 30_000))
    demo.serve(prompt("a", 3000))
    assert demo.ttft("a") * 8 == pytest.approx(real.ttft("a"), rel=0.1)
