"""The flags of ``tierwise simulate``."""

from __future__ import annotations

from dataclasses import replace

from epp.flags import values
from epp.flags.flag import Flag

_TOKENS = values.integer(0, 1 << 40)

SIMULATE: tuple[Flag, ...] = tuple(
    replace(flag, group="Flags")
    for flag in (
        Flag("policy", values.words, "policies",
             "how to choose: round-robin, random, least-requests, gpu-only, tiered, tiered-approximate, "
             "tiered-oversized, tiered-default, seeds, guide, affinity, lmetric, cost, cost-approximate, cost-picker, "
             "or a file with an EndpointPickerConfig; several with commas (default: all of them)",
             "NAME", repeated=True),
        Flag("workload", values.words, "workloads",
             "high-cache, low-cache, storage-30k, storage-50k, storage-70k, ladder-16k, agents, documents, a file "
             "of inference-perf, or a trace in Mooncake's format (.jsonl); several with commas (default high-cache)",
             "NAME", repeated=True),
        Flag("endpoints", values.integers(1, 10_000), "endpoints",
             "fleet sizes, with commas; a preset's load grows with them (default: that of the published tables)",
             "N,..."),
        Flag("written-for", values.integer(1, 10_000), "written_for",
             "endpoints that the load of a workload file is for: fleets of other sizes get as much for each endpoint "
             "(default: a file is run as it is written)", "N"),
        Flag("engine", values.text, "engine",
             "qwen3-32b-tp2-h100, qwen3-32b-tp2-h100-v0.4, qwen3-32b-tp2-h100-full, llama-3.3-70b-tp4-h100, "
             "gpt-oss-120b-h100 (default: what the workload's published tables are about)", "NAME"),
        Flag("gpu-tokens", values.integer(1024, 1 << 40), "gpu_tokens", "what each engine's GPU memory holds", "N"),
        Flag("cpu-tokens", _TOKENS, "cpu_tokens", "what each engine's CPU tier holds; 0 for none", "N"),
        Flag("tells-tiers", values.boolean, "tells_tiers",
             "engines say what their tiers hold, as kvengine does (default true)"),
        Flag("pickers", values.integer(1, 64), "pickers",
             "pickers before each fleet: a request goes to one of them by lot, and none knows of the others' picks "
             "but by what engines say (default 1)", "N"),
        Flag("past-pickers", values.share, "past_pickers",
             "the share of requests that no picker sees, from 0 to 1: they go to each endpoint in turn (default 0)",
             "SHARE"),
        Flag("seeds", values.integer(1, 1000), "seeds", "runs of each, with seeds from 1 on (default 3)", "N"),
        Flag("jobs", values.integer(1, 256), "jobs", "runs at a time, each in a process of its own (default 1)", "N"),
        Flag("output", values.path, "output", "where the report goes (default simulation)", "DIR"),
        Flag("plots", values.boolean, "plots", "draw pictures, too; needs matplotlib (default true)"),
    )
)  # fmt: skip
