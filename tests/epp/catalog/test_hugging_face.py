"""Shapes read from ``config.json`` files as the makers publish them, and from hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epp.catalog.hugging_face import MAX_BYTES, read_model
from epp.catalog.model import Model, Quantization
from epp.catalog.models import MODELS
from epp.errors import ConfigError

QWEN3_32B = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "head_dim": 128, "hidden_size": 5120,
    "intermediate_size": 25600, "max_position_embeddings": 40960, "max_window_layers": 64, "model_type": "qwen3",
    "num_attention_heads": 64, "num_hidden_layers": 64, "num_key_value_heads": 8, "rope_scaling": None,
    "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
LLAMA_33_70B = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "head_dim": 128, "hidden_size": 8192,
    "intermediate_size": 28672, "max_position_embeddings": 131072, "model_type": "llama", "num_attention_heads": 64,
    "num_hidden_layers": 80, "num_key_value_heads": 8, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}  # fmt: skip
GPT_OSS_120B = {
    "architectures": ["GptOssForCausalLM"], "attention_bias": True, "experts_per_token": 4, "head_dim": 64,
    "hidden_size": 2880, "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention"] * 18,
    "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4,
    "num_hidden_layers": 36, "num_key_value_heads": 8, "num_local_experts": 128,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    "sliding_window": 128, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 201088,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432,
    "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}, "torch_dtype": "bfloat16", "v_head_dim": 128,
    "vocab_size": 129280, "tie_word_embeddings": False,
}  # fmt: skip
GEMMA_3_27B = {
    "model_type": "gemma3", "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
    "text_config": {
        "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504, "model_type": "gemma3_text",
        "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "sliding_window": 1024,
        "vocab_size": 262208, "max_position_embeddings": 131072, "tie_word_embeddings": True,
    },
}  # fmt: skip
KNOWN = {
    "Qwen/Qwen3-32B": QWEN3_32B, "meta-llama/Llama-3.3-70B-Instruct": LLAMA_33_70B,
    "openai/gpt-oss-120b": GPT_OSS_120B, "deepseek-ai/DeepSeek-V3": DEEPSEEK_V3, "google/gemma-3-27b-it": GEMMA_3_27B,
}  # fmt: skip
SAID = (
    "hidden", "layers", "heads", "kv_heads", "vocabulary", "max_model_len", "window_layers", "window_tokens",
    "latent_dim", "experts", "experts_per_token", "dense_layers", "quantization", "parameters",
    "active_parameters", "file_bytes",
)  # fmt: skip


def write(folder: Path, config: object, name: str = "config.json") -> Path:
    (folder / name).write_text(json.dumps(config))
    return folder


def read(folder: Path, config: dict[str, Any]) -> Model:
    return read_model(write(folder, config))


@pytest.mark.parametrize(("name", "config"), KNOWN.items(), ids=KNOWN)
def test_a_makers_file_is_the_model_of_the_table(name: str, config: dict[str, Any], tmp_path: Path) -> None:
    made, known = read(tmp_path, config), MODELS[name]
    assert {key: getattr(made, key) for key in SAID} == {key: getattr(known, key) for key in SAID}
    assert made.kv_bytes_per_token() == known.kv_bytes_per_token()


def test_a_file_is_read_as_well_as_the_folder_that_holds_it(tmp_path: Path) -> None:
    write(tmp_path, QWEN3_32B)
    assert read_model(tmp_path) == read_model(tmp_path / "config.json")
    assert read_model(tmp_path).name == tmp_path.name


def test_weights_beside_the_file_are_weighed(tmp_path: Path) -> None:
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"x" * 300)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"x" * 200)
    assert read(tmp_path, QWEN3_32B).weight_bytes == 500
    write(tmp_path, {"metadata": {"total_size": 65_524_246_528}, "weight_map": {}}, "model.safetensors.index.json")
    assert read(tmp_path, QWEN3_32B).weight_bytes == 65_524_246_528


def test_a_window_counts_only_where_it_is_used(tmp_path: Path) -> None:
    with_window = QWEN3_32B | {"sliding_window": 4096}
    assert read(tmp_path, with_window).window_layers == 0
    used = with_window | {"use_sliding_window": True, "max_window_layers": 48}
    assert (read(tmp_path, used).window_layers, read(tmp_path, used).window_tokens) == (16, 4096)
    everywhere = LLAMA_33_70B | {"model_type": "mistral", "sliding_window": 4096}
    assert read(tmp_path, everywhere).window_layers == 80


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "fp8"}, Quantization.FP8),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, Quantization.FP8),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, Quantization.INT4),
        ({"quant_method": "awq", "bits": 4}, Quantization.INT4),
        ({"quant_method": "gptq", "bits": 8}, Quantization.INT8),
        (None, None),
    ],
)
def test_the_width_of_weights_is_read(
    quantization: dict[str, Any] | None, expected: Quantization | None, tmp_path: Path
) -> None:
    assert read(tmp_path, QWEN3_32B | {"quantization_config": quantization}).quantization is expected


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_hidden_layers": None}, "has no num_hidden_layers"),
        ({"num_hidden_layers": 0}, ">= 1"),
        ({"num_hidden_layers": -64}, ">= 1"),
        ({"num_hidden_layers": 1 << 40}, "<="),
        ({"num_hidden_layers": "64"}, "num_hidden_layers"),
        ({"num_hidden_layers": 64.5}, "num_hidden_layers"),
        ({"torch_dtype": "float7"}, "dtype 'float7' is not known"),
        ({"layer_types": ["full_attention"] * 3}, "3 entries for 64 layers"),
        ({"layer_types": ["linear_attention"] * 64}, "linear_attention; such layers keep a state"),
        ({"layer_types": ["sliding_attention"] * 64}, "no sliding_window"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_by_its_key(
    change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(tmp_path, QWEN3_32B | change)


def test_what_is_no_such_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_model(tmp_path)
    for text in (b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"hidden_size": 1e999}'):
        (tmp_path / "config.json").write_bytes(text)
        with pytest.raises(ConfigError, match=r"config\.json"):
            read_model(tmp_path)
    (tmp_path / "config.json").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="more than"):
        read_model(tmp_path)


KEYS = st.sampled_from(sorted(QWEN3_32B | GPT_OSS_120B | DEEPSEEK_V3))
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.integers(), st.floats(), st.text(max_size=5),
                   st.lists(st.just("sliding_attention"), max_size=3))  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(base=st.sampled_from([QWEN3_32B, GPT_OSS_120B, DEEPSEEK_V3]), change=st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_change_of_a_file_is_a_model_or_a_sentence(
    base: dict[str, Any], change: dict[str, Any], tmp_path: Path
) -> None:
    try:
        model = read(tmp_path, base | change)
    except ConfigError:
        return
    assert 0 <= model.window_layers <= model.layers
    assert 0 <= model.dense_layers <= model.layers
    assert model.active_parameters > 0
    assert model.kv_bytes_per_token() > 0
