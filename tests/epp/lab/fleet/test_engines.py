from __future__ import annotations

import pytest

from epp.errors import ConfigError
from epp.lab.engine.preset import QWEN3_32B
from epp.lab.fleet.engines import BLOCK_TOKENS, KINDS, Calibration, choose


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_preset_holds_what_its_kind_says(name: str) -> None:
    kind = KINDS[name]
    preset = kind.preset()
    assert preset.block_tokens == BLOCK_TOKENS
    assert 0 <= kind.gpu_tokens - preset.gpu_blocks * BLOCK_TOKENS < BLOCK_TOKENS
    assert 0 <= kind.cpu_tokens - preset.cpu_blocks * BLOCK_TOKENS < BLOCK_TOKENS
    assert preset.max_model_len <= kind.max_model_len


@pytest.mark.parametrize(
    ("name", "kib"), [("qwen3-32b-tp2-h100", 256), ("llama-3.3-70b-tp4-h100", 320), ("gpt-oss-120b-h100", 72)]
)
def test_a_tokens_kv_is_the_models(name: str, kib: int) -> None:
    assert KINDS[name].preset().kv_bytes_per_token == kib * 1024


def test_the_seeds_engine_is_the_one_that_is_served_in_real_time_but_for_its_blocks_and_calibration() -> None:
    kind, timing = KINDS["qwen3-32b-tp2-h100"], QWEN3_32B.timing
    simulated = kind.preset().timing
    assert kind.gpu_tokens == QWEN3_32B.gpu_blocks * QWEN3_32B.block_tokens
    assert kind.cpu_tokens == QWEN3_32B.cpu_blocks * QWEN3_32B.block_tokens
    assert simulated.overhead_s == timing.overhead_s
    assert simulated.weights_s == pytest.approx(timing.weights_s, rel=0.01)
    assert simulated.token_s == pytest.approx(timing.token_s * 1.09, rel=0.03)
    assert simulated.prefill_pair_s == pytest.approx(timing.prefill_pair_s, rel=0.05)
    assert simulated.decode_context_s == pytest.approx(timing.decode_context_s, rel=0.01)


def test_prefill_is_near_what_others_have_measured() -> None:
    """llm-d published 15,928 tokens/s for Qwen3-32B TP2 (recipe), 20,480 (fit), 39,065 for gpt-oss-120b (recipe)."""
    rates = {name: 1 / KINDS[name].preset().timing.token_s for name in ("qwen3-32b-tp2-h100", "gpt-oss-120b-h100")}
    assert 15_928 <= rates["qwen3-32b-tp2-h100"] <= 20_480
    assert rates["gpt-oss-120b-h100"] == pytest.approx(39_065, rel=0.15)


def test_tiers_can_be_given_and_an_engine_without_a_cpu_tier_pays_nothing_for_it() -> None:
    old = choose("qwen3-32b-tp2-h100-v0.4")
    without = choose("qwen3-32b-tp2-h100-v0.4", gpu_tokens=65_536, cpu_tokens=0)
    assert (without.preset().gpu_blocks, without.preset().cpu_blocks) == (256, 0)
    assert without.preset().max_model_len == 40_960
    assert old.preset().timing.overhead_s - without.preset().timing.overhead_s == pytest.approx(old.offload_step_s)
    assert old.preset().load_bytes_per_s == 2 * 6.3e9


def test_tiers_that_were_given_are_not_said_to_be_the_published_ones() -> None:
    name = "qwen3-32b-tp2-h100"
    assert "9271 and 41000 blocks" in choose(name).source
    assert choose(name, 30_000, 60_000).source == f"{name} with other tiers: --gpu-tokens and --cpu-tokens"
    assert choose(name, gpu_tokens=30_000).source == f"{name} with other tiers: --gpu-tokens"
    assert choose(name, cpu_tokens=0).source == f"{name} with other tiers: --cpu-tokens"


def test_calibration_changes_what_it_names_only() -> None:
    assert Calibration() == Calibration(overhead_s=4e-3, prefill=1.0)


def test_an_unknown_engine_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean gpt-oss-120b-h100"):
        choose("gpt-oss-120b")
