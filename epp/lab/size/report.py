"""The answer of ``tierwise size`` as data, which JSON and the tables are made from."""

from __future__ import annotations

import msgspec


class ModelPart(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of the model."""

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
    """One block on one GPU."""


class ChoicePart(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint on one kind of GPU, if the user has not named one."""

    gpu: str
    gpus_per_endpoint: int
    """The fewest on which the model fits, unless a number was given."""
    weight_bytes: int
    """On one GPU."""
    tokens_per_endpoint: int
    """Tokens of KV in GPU memory, over all GPUs of the endpoint."""
    low_tokens_per_endpoint: int
    high_tokens_per_endpoint: int
    prefill_tokens_per_s: float
    load_tokens_per_s: float
    """From CPU memory."""
    hit_share: float | None
    """The share of a workload's shared prompts that GPU memory alone finds again; None without a workload."""


class TierPart(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity of one tier."""

    tier: str
    bytes_per_endpoint: int
    """0 for storage, which endpoints share."""
    tokens_per_endpoint: int
    low_tokens_per_endpoint: int
    high_tokens_per_endpoint: int
    """The ends of an estimate's range; both equal ``tokens_per_endpoint`` if that is known."""
    blocks_per_endpoint: int
    """Blocks of the engine's block size."""
    fleet_bytes: int
    fleet_tokens: int
    source: str
    """Where the capacity comes from: an estimate, a flag, or the endpoint."""


class PricePart(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of loading a prefix of ``tokens`` tokens from one tier, compared to computing it. Units: seconds."""

    tier: str
    tokens: int
    load_s: float
    recompute_s: float
    load: bool
    """Whether loading is faster, in a fleet that loads nothing else at the time."""
    break_even_tokens: int | None
    """The length from which loading is faster; None for never."""
    bytes_per_s: float
    """The lane's bandwidth for one endpoint alone."""
    shared_load_s: float
    """With every endpoint loading at the same time."""


class HomePart(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the shared prompts that one tier is expected to serve, without the first request of each group."""

    tier: str
    hit_share: float
    """With each group at one endpoint: the share of requests served from this tier and none above."""
    scattered_hit_share: float
    """The same with requests going to any endpoint."""
    holds_all: bool
    """Whether this tier alone holds everything that an endpoint ever sees."""
    request_s: float
    """Prefill and load of one request served from here, in an empty engine."""


class WorkloadPart(msgspec.Struct, frozen=True, kw_only=True):
    """A workload and which tiers will serve it. Units: tokens, where a name has no other."""

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
    """Empty if the capacity of the GPU tier is unknown."""
    recomputed_share: float | None
    """None if the capacity of the GPU tier is unknown, as is the next field."""
    scattered_recomputed_share: float | None
    recompute_s: float
    lives_in: str
    """The first tier that, with those above it, serves nine of ten; ``nowhere`` if none does, ``unknown`` if the
    capacity of the GPU tier is unknown.
    """
    sentence: str


class AdvicePart(msgspec.Struct, frozen=True, kw_only=True):
    """A recommended setting, and why."""

    setting: str
    value: str
    why: str


class SizeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer of the command."""

    endpoints: int
    model: ModelPart | None = None
    gpu: GpuPart | None = None
    choices: tuple[ChoicePart, ...] = ()
    """By GPU, if none was given."""
    tiers: tuple[TierPart, ...] = ()
    prices: tuple[PricePart, ...] = ()
    prefill_tokens_per_s: float | None = None
    workload: WorkloadPart | None = None
    advice: tuple[AdvicePart, ...] = ()
    notes: tuple[str, ...] = ()
