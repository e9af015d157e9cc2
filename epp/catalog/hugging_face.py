"""Reads a model's shape from its ``config.json``, and the size of its weights from the files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from epp.catalog.model import Model, Quantization
from epp.errors import ConfigError

T = TypeVar("T")

_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 32)]
_Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 32)]
_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1}
_INT4, _INT8 = frozenset({"awq", "gptq", "bitsandbytes", "auto-round"}), frozenset({"w8a8_int8"})
_WINDOWED = frozenset({"sliding_attention", "chunked_attention"})
_PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2}
"""One layer in this many is of full attention, if the file does not list its layers."""
_WINDOW_IS_ASKED_FOR = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"})
"""Models for which ``sliding_window`` has no effect without ``use_sliding_window``."""
MAX_BYTES = 8 << 20
"""Maximum size of a file that is read."""


class _Quantization(msgspec.Struct):
    quant_method: str = ""
    bits: int | None = None
    format: str | None = None


class _Config(msgspec.Struct):
    """The fields of the file that matter here; the rest is for the model library."""

    model_type: str = ""
    hidden_size: _Count | None = None
    num_hidden_layers: _Count | None = None
    num_attention_heads: _Count | None = None
    num_key_value_heads: _Count | None = None
    head_dim: _Count | None = None
    intermediate_size: _Amount | None = None
    vocab_size: _Count | None = None
    max_position_embeddings: _Count | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    dtype: str | None = None
    torch_dtype: str | None = None

    layer_types: list[str] | None = None
    sliding_window: _Count | None = None
    use_sliding_window: bool | None = None
    sliding_window_pattern: _Count | None = None
    max_window_layers: _Amount | None = None
    attention_chunk_size: _Count | None = None

    num_experts: _Amount | None = None
    num_local_experts: _Amount | None = None
    n_routed_experts: _Amount | None = None
    num_experts_per_tok: _Amount | None = None
    moe_intermediate_size: _Amount | None = None
    n_shared_experts: _Amount | None = None
    first_k_dense_replace: _Amount | None = None

    kv_lora_rank: _Count | None = None
    q_lora_rank: _Count | None = None
    qk_rope_head_dim: _Count | None = None
    qk_nope_head_dim: _Count | None = None
    v_head_dim: _Count | None = None

    quantization_config: _Quantization | None = None
    text_config: _Config | None = None
    """In a multimodal model: the part that reads and writes text."""


class _Index(msgspec.Struct):
    """The contents of ``model.safetensors.index.json``."""

    class Metadata(msgspec.Struct):
        total_size: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] | None = None

    metadata: Metadata | None = None


def read_model(path: Path) -> Model:
    """Return the model of a ``config.json``, or of a folder that holds one.

    Raises: ConfigError naming the file and the key.
    """
    file = path / "config.json" if path.is_dir() else path
    config = _decode(file, _Config)
    outer, config = config, config.text_config or config
    quantization = outer.quantization_config or config.quantization_config
    where = f"--model={path}: {file}" if file != path else f"--model={path}"
    layers, hidden, heads = (
        _needed(config, key, where) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    window_layers, window_tokens = _windows(config, layers, where)
    experts = config.num_experts or config.num_local_experts or config.n_routed_experts or 0
    inner = config.intermediate_size or 0
    latent_dim, latent_parameters = _latent(config, hidden, heads, where)
    return Model(
        name=file.parent.resolve().name if file.name == "config.json" else file.stem,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=config.num_key_value_heads or heads,
        head_dim=config.head_dim or max(1, hidden // heads),
        inner=inner,
        vocabulary=_needed(config, "vocab_size", where),
        max_model_len=config.max_position_embeddings or 2048,
        tied=config.tie_word_embeddings or outer.tie_word_embeddings,
        attention_bias=config.attention_bias or config.model_type.startswith("qwen2"),
        full_bias=config.model_type == "gpt_oss",
        experts=experts,
        experts_per_token=min(experts, config.num_experts_per_tok or 1),
        expert_inner=config.moe_intermediate_size or (inner if experts else 0),
        shared_experts=config.n_shared_experts or 0,
        dense_layers=min(layers, config.first_k_dense_replace or 0) if experts else 0,
        window_layers=window_layers,
        window_tokens=window_tokens,
        latent_dim=latent_dim,
        latent_parameters=latent_parameters,
        dtype_bytes=_dtype_bytes(outer, config, where),
        quantization=_quantized(quantization),
        stored_bytes=_stored_bytes(file.parent),
    )


def _needed(config: _Config, key: Literal["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"],
            where: str) -> int:  # fmt: skip
    value: int | None = getattr(config, key)
    if value is None:
        raise ConfigError(f"{where} has no {key}; it must be the config.json of a transformer that generates text")
    return value


def _windows(config: _Config, layers: int, where: str) -> tuple[int, int]:
    """Return how many layers have a limited window, and how many tokens it has."""
    window = config.sliding_window or config.attention_chunk_size or 0
    if config.layer_types is not None:
        foreign = sorted({kind for kind in config.layer_types if kind not in {*_WINDOWED, "full_attention"}})
        if foreign:
            raise ConfigError(
                f"{where}: layer_types has {', '.join(foreign)}; such layers keep a state, not KV per token, and "
                "cannot be sized here; read the capacity from a running endpoint: --metrics-url"
            )
        if len(config.layer_types) != layers:
            raise ConfigError(f"{where}: layer_types has {len(config.layer_types)} entries for {layers} layers")
        windowed = sum(kind in _WINDOWED for kind in config.layer_types)
        if windowed and not window:
            raise ConfigError(f"{where}: layer_types has windowed layers and there is no sliding_window")
        return (windowed, window) if windowed else (0, 0)
    off = config.use_sliding_window is False
    if not window or off or (config.use_sliding_window is None and config.model_type in _WINDOW_IS_ASKED_FOR):
        return 0, 0
    if config.model_type in _WINDOW_IS_ASKED_FOR:
        full = min(layers, layers if config.max_window_layers is None else config.max_window_layers)
        return layers - full, window if full < layers else 0
    period = config.sliding_window_pattern or _PERIODS.get(config.model_type)
    return (layers - layers // period if period else layers), window


def _latent(config: _Config, hidden: int, heads: int, where: str) -> tuple[int, int]:
    """Return, for MLA, the values kept per token and layer, and the weights of its projections; zeros without MLA."""
    latent = config.kv_lora_rank
    if latent is None:
        return 0, 0
    rope, nope, values = config.qk_rope_head_dim, config.qk_nope_head_dim, config.v_head_dim
    if rope is None or nope is None or values is None:
        raise ConfigError(
            f"{where} has kv_lora_rank, and not qk_rope_head_dim, qk_nope_head_dim and v_head_dim with it"
        )
    ranks = config.q_lora_rank
    queries = hidden * heads * (nope + rope) if ranks is None else ranks * (hidden + heads * (nope + rope))
    return latent + rope, (
        queries + hidden * (latent + rope) + latent * heads * (nope + values) + heads * values * hidden
    )


def _dtype_bytes(outer: _Config, config: _Config, where: str) -> int:
    name = outer.dtype or outer.torch_dtype or config.dtype or config.torch_dtype or "bfloat16"
    plain = name.removeprefix("torch.")
    if plain not in _DTYPE_BYTES:
        raise ConfigError(f"{where}: dtype {name!r} is not known; there are {', '.join(_DTYPE_BYTES)}")
    return _DTYPE_BYTES[plain]


def _quantized(written: _Quantization | None) -> Quantization | None:
    if written is None:
        return None
    method = written.quant_method.lower()
    if method in ("fp8", "fbgemm_fp8", "modelopt") or (written.format or "").startswith("float"):
        return Quantization.FP8
    if method == "mxfp4":
        return Quantization.MXFP4
    if written.bits == 8 or method in _INT8 or (written.format or "").startswith("int"):
        return Quantization.INT8
    return Quantization.INT4 if method in _INT4 or written.bits == 4 or "pack" in (written.format or "") else None


def _stored_bytes(folder: Path) -> int | None:
    """Return the bytes in the files of weights beside the configuration; None if there are none."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        metadata = _decode(index, _Index).metadata
        if metadata is not None and metadata.total_size:
            return metadata.total_size
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) or None


def _decode(file: Path, kind: type[T]) -> T:
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{file}: {error.strerror or error}; give a config.json or the folder that holds one"
        ) from error
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{file} has more than {MAX_BYTES:,} bytes, which no config.json has")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}; it must be the config.json of a model on Hugging Face") from error
