"""The table of models against what their makers publish, and the arithmetic of their shapes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.catalog.model import Model
from epp.catalog.models import MODELS, find

KIB, GIB = 2**10, 2**30

# Parameters in billions: the count of each checkpoint's tensors where Hugging Face shows it, else the model card.
PUBLISHED = {
    "Qwen/Qwen3-0.6B": 0.596, "Qwen/Qwen3-1.7B": 1.720, "Qwen/Qwen3-4B": 4.022, "Qwen/Qwen3-8B": 8.190,
    "Qwen/Qwen3-14B": 14.768, "Qwen/Qwen3-32B": 32.762, "Qwen/Qwen3-30B-A3B": 30.53, "Qwen/Qwen3-235B-A22B": 235.09,
    "Qwen/Qwen2.5-7B-Instruct": 7.616, "Qwen/Qwen2.5-32B-Instruct": 32.764, "Qwen/Qwen2.5-72B-Instruct": 72.706,
    "meta-llama/Llama-3.2-1B-Instruct": 1.236, "meta-llama/Llama-3.2-3B-Instruct": 3.213,
    "meta-llama/Llama-3.1-8B-Instruct": 8.030, "meta-llama/Llama-3.3-70B-Instruct": 70.554,
    "meta-llama/Llama-3.1-405B-Instruct": 405.85, "mistralai/Mistral-7B-Instruct-v0.3": 7.248,
    "mistralai/Mistral-Small-24B-Instruct-2501": 23.57, "microsoft/phi-4": 14.66,
    "openai/gpt-oss-20b": 20.91, "openai/gpt-oss-120b": 116.83, "deepseek-ai/DeepSeek-V3": 671.0,
}  # fmt: skip

# KiB per token, 16 bits: 2 * layers * kv_heads * head_dim * 2 bytes, by hand.
KV_KIB = {
    "Qwen/Qwen3-0.6B": 112, "Qwen/Qwen3-8B": 144, "Qwen/Qwen3-32B": 256, "meta-llama/Llama-3.1-8B-Instruct": 128,
    "meta-llama/Llama-3.3-70B-Instruct": 320, "openai/gpt-oss-120b": 72,
    "deepseek-ai/DeepSeek-V3": 61 * (512 + 64) * 2 / 1024,
}  # fmt: skip


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_a_models_parameters_are_those_its_maker_publishes(name: str, billions: float) -> None:
    assert MODELS[name].parameters / 1e9 == pytest.approx(billions, rel=5e-4)


@pytest.mark.parametrize(("name", "kib"), KV_KIB.items())
def test_kv_bytes_per_token_are_the_product_of_the_shape(name: str, kib: float) -> None:
    assert MODELS[name].kv_bytes_per_token() == kib * KIB


def test_gpt_oss_has_the_sizes_of_its_model_card() -> None:
    large, small = MODELS["openai/gpt-oss-120b"], MODELS["openai/gpt-oss-20b"]
    assert (large.active_parameters / 1e9, small.active_parameters / 1e9) == pytest.approx((5.13, 3.61), abs=5e-3)
    assert (large.file_bytes / GIB, small.file_bytes / GIB) == pytest.approx((60.8, 12.8), abs=0.1)
    assert (large.full_layers, large.window_layers, large.window_tokens) == (18, 18, 128)


def test_quantized_weights_are_smaller_and_embeddings_are_not() -> None:
    plain, fp8 = MODELS["Qwen/Qwen3-8B"], MODELS["Qwen/Qwen3-8B-FP8"]
    embeddings = 2 * plain.vocabulary * plain.hidden
    assert fp8.file_bytes == plain.file_bytes - (plain.parameters - embeddings)
    assert fp8.kv_bytes_per_token() == plain.kv_bytes_per_token()


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_model_uses_no_more_weights_for_a_token_than_it_has(model: Model) -> None:
    assert 0 < model.active_parameters <= model.parameters
    assert model.full_layers + model.window_layers == model.layers
    assert model.heads % model.kv_heads == 0


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@given(power=st.integers(0, 4))
def test_ranks_share_heads_and_copy_what_they_cannot_share(model: Model, power: int) -> None:
    ranks = 2**power
    alone, together = model.kv_bytes_per_token(), model.kv_bytes_per_token(ranks=ranks)
    copied = ranks if model.latent_dim else max(1, ranks / model.kv_heads)
    assert together == alone * copied


def test_a_name_is_found_without_its_owner_and_in_any_case() -> None:
    assert find("qwen3-32b") is MODELS["Qwen/Qwen3-32B"]
    assert find("meta-llama/llama-3.3-70b") is MODELS["meta-llama/Llama-3.3-70B-Instruct"]
    assert find("qwen3-33b") is None


def test_the_page_names_every_model_that_is_known_by_name() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sizing.md").read_text()
    (named,) = re.findall(r"These models are known by name[^:]*:(.*?)\. Any other", page, re.DOTALL)
    assert re.findall(r"`([^`]+)`", named) == list(MODELS)


@pytest.mark.parametrize(
    ("older", "name"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("meta-llama/Meta-Llama-3.1-405B", "meta-llama/Llama-3.1-405B-Instruct"),
        ("Meta-Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"),
    ],
)
def test_a_name_that_a_model_had_before_is_known(older: str, name: str) -> None:
    assert find(older) is MODELS[name]


def test_half_the_width_of_kv_is_half_the_bytes() -> None:
    for model in MODELS.values():
        assert model.kv_bytes_per_token(1) * 2 == model.kv_bytes_per_token(2)
        assert replace(model, window_layers=0).kv_bytes_per_token() == model.kv_bytes_per_token()
