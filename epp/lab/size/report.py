"""The answer of ``tierwise size``, as data: what JSON shows and the tables are made of."""

from __future__ import annotations

import msgspec


class ModelPart(msgspec.Struct, frozen=True, kw_only=True):
    """The model's shape."""

    name: str
    layers: int
    window_layers: int
    kv_heads: int
    head_dim: int
    parameters: int
    active_parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    """Over all GPUs of an endpoint, all layers."""
    kv_dtype_bytes: int
    max_model_len: int


class GpuPart(msgspec.Struct, frozen=True, kw_only=True):
    """Where the memory of one GPU goes. Units: bytes."""

    name: str
    per_endpoint: int
    memory_bytes: int
    utilization: float
    weight_bytes: int
    overhead_bytes: int
    kv_bytes: int
    block_bytes: int
    """Of one block on one GPU."""


class ChoicePart(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint on one kind of GPU, where nobody has said which it is."""

    gpu: str
    gpus_per_endpoint: int
    """As few as have room for the model, unless a number was given."""
    weight_bytes: int
    """On one GPU."""
    tokens_per_endpoint: int
    """Of KV in GPU memory, all GPUs of the endpoint together."""
    low_tokens_per_endpoint: int
    high_tokens_per_endpoint: int
    prefill_tokens_per_s: float
    load_tokens_per_s: float
    """From CPU memory."""
    hit_share: float | None
    """Of a workload's shared prompts, what GPU memory alone finds again; None without a workload."""


class TierPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one tier holds."""

    tier: str
    bytes_per_endpoint: int
    """0 for storage, which endpoints share."""
    tokens_per_endpoint: int
    low_tokens_per_endpoint: int
    high_tokens_per_endpoint: int
    """The range of an estimate; the same three times where it is known."""
    blocks_per_endpoint: int
    """Of the engine's block size."""
    fleet_bytes: int
    fleet_tokens: int
    source: str
    """Who says so."""


class PricePart(msgspec.Struct, frozen=True, kw_only=True):
    """Having a prefix of ``tokens`` tokens back from one tier, against computing it. Units: seconds."""

    tier: str
    tokens: int
    load_s: float
    recompute_s: float
    load: bool
    """The verdict for a fleet in which nothing else is loaded at the time."""
    break_even_tokens: int | None
    """From here on loading is faster; None for never."""
    bytes_per_s: float
    """Of the lane, for one endpoint alone."""
    shared_load_s: float
    """With every endpoint loading at the same time."""


class HomePart(msgspec.Struct, frozen=True, kw_only=True):
    """What share of the shared prompts one tier is expected to serve, the first request of each group aside."""

    tier: str
    hit_share: float
    """With each group at one endpoint: of requests, those served from this tier and none above."""
    scattered_hit_share: float
    """With requests going anywhere."""
    holds_all: bool
    """Whether this tier alone holds everything that an endpoint ever sees."""
    request_s: float
    """Prefill and load of one request served from here, in an empty engine."""


class WorkloadPart(msgspec.Struct, frozen=True, kw_only=True):
    """A workload and where it will live. Units: tokens, but for the last."""

    name: str
    num_groups: int
    num_prompts_per_group: int
    system_prompt_len: int
    question_len: int
    output_len: int
    concurrency: int
    shared_tokens: int
    own_tokens: int
    working_set_tokens: int
    working_set_bytes: int
    groups_per_endpoint: int
    active_tokens_per_endpoint: int
    homes: tuple[HomePart, ...]
    """Empty where nothing says what the GPU tier holds."""
    recomputed_share: float | None
    """None there, too."""
    scattered_recomputed_share: float | None
    recompute_s: float
    lives_in: str
    """The first tier that, with those above it, serves nine of ten; ``nowhere`` if none does, ``unknown`` where nothing
    says what the GPU tier holds."""
    sentence: str


class AdvicePart(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, and why."""

    setting: str
    value: str
    why: str


class SizeReport(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    endpoints: int
    model: ModelPart | None = None
    gpu: GpuPart | None = None
    choices: tuple[ChoicePart, ...] = ()
    """By GPU, where none was given."""
    tiers: tuple[TierPart, ...] = ()
    prices: tuple[PricePart, ...] = ()
    prefill_tokens_per_s: float | None = None
    workload: WorkloadPart | None = None
    advice: tuple[AdvicePart, ...] = ()
    notes: tuple[str, ...] = ()
