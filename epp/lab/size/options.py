"""What ``tierwise size`` is asked, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from epp.errors import ConfigError


class Output(Enum):
    """How the answer is printed."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """A workload by inference-perf's key names; None for what was not said."""

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
    def asked(self) -> bool:
        """Whether anything was said."""
        return any(getattr(self, each.name) is not None for each in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOptions:
    """``tierwise size``. None for what was not said."""

    model: str | None = None
    """A known name, or a path."""
    gpu: str | None = None
    gpu_memory_bytes: int | None = None
    """Of one GPU; instead of what the table says."""
    ranks: int | None = None
    endpoints: int = 1
    utilization: float | None = None
    kv_dtype: str = "auto"
    block_tokens: int | None = None
    max_num_seqs: int | None = None
    gpu_blocks: int | None = None
    overhead_bytes: int | None = None
    """Of one GPU: what the engine takes beside weights and KV."""

    ram_bytes: int | None = None
    """Of one endpoint."""
    local_cpu_gib: float | None = None
    """Per worker."""
    cpu_bytes: int | None = None
    """Per endpoint."""
    chunk_tokens: int = 256
    host_bytes_per_s: float | None = None
    """Of one GPU, from host memory; instead of what the table says."""
    storage_bytes: int | None = None
    """Of the fleet."""
    storage_bytes_per_s: float | None = None
    """Of the fleet."""

    metrics_url: str | None = None
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    seeds: bool = False
    output: Output = Output.TABLE


def size_options(given: Mapping[str, Any]) -> SizeOptions:
    """The options from the values of flags by name. Raises: ConfigError for flags that exclude each other."""
    from epp.lab.size.flags import SIZE, WORKLOAD

    sizes = [name for name in ("max-local-cpu-size", "cpu-bytes-to-use") if name in given]
    if len(sizes) > 1:
        raise ConfigError("--max-local-cpu-size and --cpu-bytes-to-use say the same in two units; give one of them")
    if given.get("seeds") and len(given) > 1 + ("output" in given):
        others = sorted(set(given) - {"seeds", "output"})
        raise ConfigError(
            f"--seeds prints published figures, and --{others[0]} changes nothing about them; leave it out"
        )
    workload = WorkloadOptions(**{flag.field: given[flag.name] for flag in WORKLOAD if flag.name in given})
    plain = {flag.field: given[flag.name] for flag in SIZE if flag.name in given and flag not in WORKLOAD}
    return replace(SizeOptions(workload=workload), **plain)
