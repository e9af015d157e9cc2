"""Widely served models, by their names.

Source: the numbers of each model's ``config.json`` on Hugging Face. Parameters and sizes are computed from them, and
``tests/epp/catalog/test_models.py`` compares these with what the makers publish.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from epp.catalog.model import Model, Quantization


def _qwen3(
    size: str, hidden: int, layers: int, heads: int, inner: int, *, tied: bool = False, kv_heads: int = 8
) -> Model:
    return Model(
        name=f"Qwen/Qwen3-{size}", hidden=hidden, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=128,
        inner=inner, vocabulary=151_936, max_model_len=40_960, tied=tied,
    )  # fmt: skip


def _qwen25(size: str, hidden: int, layers: int, heads: int, kv_heads: int, inner: int) -> Model:
    return Model(
        name=f"Qwen/Qwen2.5-{size}-Instruct", hidden=hidden, layers=layers, heads=heads, kv_heads=kv_heads,
        head_dim=128, inner=inner, vocabulary=152_064, max_model_len=32_768, attention_bias=True,
    )  # fmt: skip


def _llama(
    name: str, hidden: int, layers: int, heads: int, inner: int, head_dim: int = 128, tied: bool = False
) -> Model:
    return Model(
        name=f"meta-llama/{name}-Instruct", hidden=hidden, layers=layers, heads=heads, kv_heads=8, head_dim=head_dim,
        inner=inner, vocabulary=128_256, max_model_len=131_072, tied=tied,
    )  # fmt: skip


def _gpt_oss(size: str, layers: int, experts: int, loaded_bytes: int | None = None) -> Model:
    return Model(
        name=f"openai/gpt-oss-{size}", hidden=2880, layers=layers, heads=64, kv_heads=8, head_dim=64, inner=2880,
        vocabulary=201_088, max_model_len=131_072, full_bias=True, experts=experts, experts_per_token=4,
        expert_inner=2880, window_layers=layers // 2, window_tokens=128, quantization=Quantization.MXFP4,
        loaded_bytes=loaded_bytes,
    )  # fmt: skip


def _qwen3_moe(size: str, hidden: int, layers: int, heads: int, expert_inner: int) -> Model:
    return replace(
        _qwen3(size, hidden, layers, heads, 0, kv_heads=4),
        experts=128, experts_per_token=8, expert_inner=expert_inner,
    )  # fmt: skip


_QWEN3_8B, _QWEN3_32B = _qwen3("8B", 4096, 36, 32, 12_288), _qwen3("32B", 5120, 64, 64, 25_600)

_LATENT_QUERIES, _LATENT_KV, _ROPE, _NOPE, _VALUES, _DEEPSEEK_HEADS, _DEEPSEEK_HIDDEN = (
    1536,
    512,
    64,
    128,
    128,
    128,
    7168,
)
_DEEPSEEK = Model(
    name="deepseek-ai/DeepSeek-V3",
    hidden=_DEEPSEEK_HIDDEN, layers=61, heads=_DEEPSEEK_HEADS, kv_heads=_DEEPSEEK_HEADS, head_dim=_NOPE + _ROPE,
    inner=18_432, vocabulary=129_280, max_model_len=163_840,
    experts=256, experts_per_token=8, expert_inner=2048, shared_experts=1, dense_layers=3,
    latent_dim=_LATENT_KV + _ROPE,
    latent_parameters=_DEEPSEEK_HIDDEN * (_LATENT_QUERIES + _LATENT_KV + _ROPE)
    + _LATENT_QUERIES * _DEEPSEEK_HEADS * (_NOPE + _ROPE)
    + _LATENT_KV * _DEEPSEEK_HEADS * (_NOPE + _VALUES)
    + _DEEPSEEK_HEADS * _VALUES * _DEEPSEEK_HIDDEN,
    quantization=Quantization.FP8,
)  # fmt: skip

_ALL = (
    _qwen3("0.6B", 1024, 28, 16, 3072, tied=True),
    _qwen3("1.7B", 2048, 28, 16, 6144, tied=True),
    _qwen3("4B", 2560, 36, 32, 9728, tied=True),
    _QWEN3_8B,
    replace(_QWEN3_8B, name="Qwen/Qwen3-8B-FP8", quantization=Quantization.FP8),
    _qwen3("14B", 5120, 40, 40, 17_408),
    _QWEN3_32B,
    replace(_QWEN3_32B, name="Qwen/Qwen3-32B-FP8", quantization=Quantization.FP8),
    replace(_QWEN3_32B, name="Qwen/Qwen3-32B-AWQ", quantization=Quantization.INT4),
    _qwen3_moe("30B-A3B", 2048, 48, 32, 768),
    _qwen3_moe("235B-A22B", 4096, 94, 64, 1536),
    _qwen25("7B", 3584, 28, 28, 4, 18_944),
    _qwen25("32B", 5120, 64, 40, 8, 27_648),
    _qwen25("72B", 8192, 80, 64, 8, 29_568),
    _llama("Llama-3.2-1B", 2048, 16, 32, 8192, 64, tied=True),
    _llama("Llama-3.2-3B", 3072, 28, 24, 8192, 128, tied=True),
    _llama("Llama-3.1-8B", 4096, 32, 32, 14_336),
    _llama("Llama-3.1-70B", 8192, 80, 64, 28_672),
    _llama("Llama-3.3-70B", 8192, 80, 64, 28_672),
    _llama("Llama-3.1-405B", 16_384, 126, 128, 53_248),
    Model(
        name="mistralai/Mistral-7B-Instruct-v0.3", hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128,
        inner=14_336, vocabulary=32_768, max_model_len=32_768,
    ),
    Model(
        name="mistralai/Mistral-Small-24B-Instruct-2501", hidden=5120, layers=40, heads=32, kv_heads=8, head_dim=128,
        inner=32_768, vocabulary=131_072, max_model_len=32_768,
    ),
    Model(
        name="microsoft/phi-4", hidden=5120, layers=40, heads=40, kv_heads=10, head_dim=128, inner=17_920,
        vocabulary=100_352, max_model_len=16_384,
    ),
    Model(
        name="google/gemma-3-27b-it", hidden=5376, layers=62, heads=32, kv_heads=16, head_dim=128, inner=21_504,
        vocabulary=262_208, max_model_len=131_072, tied=True, window_layers=52, window_tokens=1024,
    ),
    _gpt_oss("20b", 24, 32),
    _gpt_oss("120b", 36, 128, loaded_bytes=round(64.38 * 2**30)),  # one H100; its log in vllm-project/vllm#33155
    _DEEPSEEK,
    replace(_DEEPSEEK, name="deepseek-ai/DeepSeek-R1"),
)  # fmt: skip

MODELS = {model.name: model for model in _ALL}


def find(name: str, models: Iterable[Model] = _ALL) -> Model | None:
    """Return the model called ``name``, or None; case, the owner and ``-Instruct`` do not matter.

    Llamas that were published as ``Meta-Llama-...`` are found by that name, too.
    """
    wanted = _plain(name)
    return next(
        (model for model in models if wanted in (_plain(model.name), _plain(model.name.partition("/")[2]))), None
    )


def _plain(name: str) -> str:
    owner, slash, own = name.strip().lower().rpartition("/")
    own = f"llama-{own.removeprefix('meta-llama-')}" if own.startswith("meta-llama-") else own
    return f"{owner}{slash}{own}".removesuffix("-instruct").removesuffix("-it")
