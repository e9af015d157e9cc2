"""The options of ``tierwise size``, as typed values."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum


class Output(Enum):
    """The output format of the answer."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """A workload by inference-perf's key names; None for what was not given."""

    preset: str | None = None
    written_for: int | None = None
    """Endpoints that the load of ``preset``, a file, is for; None takes a file as it is written."""
    num_groups: int | None = None
    num_prompts_per_group: int | None = None
    system_prompt_len: int | None = None
    question_len: int | None = None
    output_len: int | None = None
    concurrency: int | None = None

    @property
    def given(self) -> bool:
        """Whether any of the options was given."""
        return any(getattr(self, each.name) is not None for each in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOptions:
    """The options of ``tierwise size``. None for what was not given."""

    model: str | None = None
    """A name of the catalog, or a path."""
    gpu: str | None = None
    gpu_memory_bytes: int | None = None
    """One GPU, in place of the catalog's value."""
    ranks: int | None = None
    endpoints: int = 1
    utilization: float | None = None
    kv_dtype: str = "auto"
    block_tokens: int | None = None
    max_num_seqs: int | None = None
    gpu_blocks: int | None = None
    overhead_bytes: int | None = None
    """What the engine takes of one GPU beside weights and KV."""

    ram_bytes: int | None = None
    """Host memory of one endpoint."""
    local_cpu_gib: float | None = None
    """The CPU tier per worker."""
    cpu_bytes: int | None = None
    """The CPU tier per endpoint."""
    chunk_tokens: int = 256
    host_bytes_per_s: float | None = None
    """From host memory to one GPU, in place of the catalog's value."""
    storage_bytes: int | None = None
    """Storage of the whole fleet."""
    storage_bytes_per_s: float | None = None
    """Storage bandwidth of the whole fleet."""

    metrics_url: str | None = None
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    output: Output = Output.TABLE
