"""The flags of ``tierwise size``. Where vLLM, kvengine or inference-perf have a name, the flag has the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from epp.errors import ConfigError
from epp.flags import values
from epp.flags.flag import Flag, grouped
from epp.lab.size.options import Output, SizeOptions, WorkloadOptions

_TOKENS = values.integer(0, 100_000_000)
_MANY = values.integer(1, 10_000_000)


WORKLOAD: tuple[Flag, ...] = grouped(
    "The workload",
    Flag(
        "workload",
        values.text,
        "preset",
        "by name or file, as for simulate: high-cache, low-cache, ...; the flags below change it",
        "NAME",
    ),
    Flag("written-for", values.integer(1, 100_000), "written_for",
         "endpoints that the load of a workload file is for, as for simulate", "N"),
    Flag("num-groups", _MANY, "num_groups", "groups of requests that share a system prompt", "N"),
    Flag("num-prompts-per-group", _MANY, "num_prompts_per_group", "requests of a group (default 10)", "N"),
    Flag("system-prompt-len", _TOKENS, "system_prompt_len", "tokens that the requests of a group share", "TOKENS"),
    Flag("question-len", _TOKENS, "question_len", "tokens of a prompt behind that (default 256)", "TOKENS"),
    Flag("output-len", _TOKENS, "output_len", "tokens of an answer (default 1024)", "TOKENS"),
    Flag("concurrency", _MANY, "concurrency", "requests at a time, in the fleet (default: one per endpoint)", "N"),
)  # fmt: skip

SIZE: tuple[Flag, ...] = (
    *grouped(
        "The engine",
        Flag("model", values.text, "model", "a known model, or a config.json, or the folder with one", "NAME|PATH"),
        Flag("gpu", values.text, "gpu", "h100, h200, a100, l4, l40s, b200, gh200, ...; none compares them all", "KIND"),
        Flag("gpu-memory", values.memory(1 << 30, 1 << 43), "gpu_memory_bytes",
             "of one GPU, as the driver reports it (default: what is known of --gpu)", "SIZE"),
        Flag("tensor-parallel-size", values.integer(1, 1024), "ranks", "GPUs of one endpoint (default 1)", "N"),
        Flag("endpoints", values.integer(1, 100_000), "endpoints", "endpoints of the fleet (default 1)", "N"),
        Flag("gpu-memory-utilization", values.number(0.01, 1.0), "utilization",
             "share of the GPU that the engine takes (default 0.9)", "0..1"),
        Flag("kv-cache-dtype", values.word("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"), "kv_dtype",
             "of keys and values (default auto: the model's)", "auto|fp8"),
        Flag("block-size", values.integer(1, 1 << 16), "block_tokens", "tokens of a block (default 16)", "TOKENS"),
        Flag("max-num-seqs", values.integer(1, 1 << 20), "max_num_seqs",
             "requests of a batch, which the engine sets memory aside for (default: vLLM's, 1024 or 256)", "N"),
        Flag("num-gpu-blocks-override", values.integer(1, 10**9), "gpu_blocks",
             "blocks, where they are known: instead of the estimate", "N"),
        Flag("engine-overhead", values.memory(0, 1 << 40), "overhead_bytes",
             "what the engine takes of a GPU beside weights and KV (default: an estimate)", "SIZE"),
        Flag("metrics-url", values.text, "metrics_url",
             "a running endpoint's metrics: what it says is taken for what is not given here", "URL"),
    ),
    *grouped(
        "The tiers below",
        Flag("ram", values.memory(0, 1 << 50), "ram_bytes",
             "host memory of one endpoint: how much of it may KV take?", "SIZE"),
        Flag("max-local-cpu-size", values.number(0, 1_048_576, " of GiB without a unit,"), "local_cpu_gib",
             "CPU tier in GiB per worker (GPU), as kvengine and LMCache count it", "GIB"),
        Flag("cpu-bytes-to-use", values.memory(0, 1 << 50), "cpu_bytes",
             "CPU tier of one endpoint, as kvengine and vLLM's own offloading count it: bytes, or with a unit", "SIZE"),
        Flag("chunk-size", values.integer(1, 1 << 20), "chunk_tokens", "kvengine's unit there (default 256)", "TOKENS"),
        Flag("host-bandwidth", values.memory(1, 1 << 50), "host_bytes_per_s",
             "bytes per second from host memory to one GPU (default: what is known of --gpu)", "SIZE"),
        Flag("storage", values.memory(0, 1 << 60), "storage_bytes", "storage that all endpoints share", "SIZE"),
        Flag("storage-bandwidth", values.memory(1, 1 << 50), "storage_bytes_per_s",
             "bytes per second from there, all endpoints together", "SIZE"),
    ),
    *WORKLOAD,
    *grouped(
        "The answer",
        Flag("output", values.one_of(Output), "output", "tables, or JSON with every number (default table)",
             "table|json"),
    ),
)  # fmt: skip


def size_options(given: Mapping[str, Any]) -> SizeOptions:
    """Return the options for the values of flags by name. Raises: ConfigError for flags that exclude each other."""
    sizes = [name for name in ("max-local-cpu-size", "cpu-bytes-to-use") if name in given]
    if len(sizes) > 1:
        raise ConfigError("--max-local-cpu-size and --cpu-bytes-to-use say the same in two units; give one of them")
    workload = WorkloadOptions(**{flag.field: given[flag.name] for flag in WORKLOAD if flag.name in given})
    plain = {flag.field: given[flag.name] for flag in SIZE if flag.name in given and flag not in WORKLOAD}
    return replace(SizeOptions(workload=workload), **plain)
