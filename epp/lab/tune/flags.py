"""The flags of ``tierwise tune``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from epp.flags import values
from epp.flags.flag import Flag, grouped
from epp.lab.tune.options import Objective, TuneOptions

TUNE: tuple[Flag, ...] = (
    *grouped(
        "What for",
        Flag("workload", values.text, "workload",
             "by name, a file of inference-perf, or a trace (.jsonl), as for simulate (default high-cache)", "NAME"),
        Flag("engine", values.text, "engine", "as for simulate (default: that of the workload's tables)", "NAME"),
        Flag("endpoints", values.integer(2, 10_000), "endpoints",
             "of the fleet; a preset's load grows with it (default: that of the tables)", "N"),
        Flag("written-for", values.integer(1, 10_000), "written_for",
             "endpoints that the load of a workload file is for, as for simulate", "N"),
        Flag("gpu-tokens", values.integer(1024, 1 << 40), "gpu_tokens", "what each engine's GPU memory holds", "N"),
        Flag("cpu-tokens", values.integer(0, 1 << 40), "cpu_tokens", "what each engine's CPU tier holds", "N"),
        Flag("objective", values.one_of(Objective), "objective", "what is to be better (default mean-ttft)",
             "|".join(each.value for each in Objective)),
    ),
    *grouped(
        "How long",
        Flag("budget", values.duration(1, 7 * 86_400), "budget_s", "time for all of it (default 5m)", "DURATION"),
        Flag("candidates", values.integer(3, 400), "candidates",
             "how many are tried, however long it takes: repeats a search (default: as the budget allows)", "N"),
        Flag("rounds", values.integer(1, 1000), "rounds",
             "of the search; with --candidates it repeats one that had time for more (default: as planned)", "N"),
        Flag("held-out", values.integer(3, 1000), "held_out",
             "seeds that the search does not see, which say what to expect (default 10)", "N"),
        Flag("seed", values.integer(0, 1_000_000), "seed", "what is tried, and on which workloads (default 1)", "N"),
        Flag("jobs", values.integer(1, 256), "jobs", "simulations at a time, each in a process (default 1)", "N"),
    ),
    *grouped(
        "Where to",
        Flag("output", values.path, "output",
             "folder for picker.yaml, values.yaml and what was tried (default tuned)", "DIR"),
    ),
)  # fmt: skip


def tune_options(given: Mapping[str, Any]) -> TuneOptions:
    """Return the options for the values of flags by name."""
    named = {flag.name: flag.field for flag in TUNE}
    known = {field.name for field in fields(TuneOptions)}
    return TuneOptions(**{named[name]: value for name, value in given.items() if named[name] in known})
