"""How much longer is a decision with prices in seconds than one with weights?

``Director.decide`` as in ``benchmarks.picker.decision``, with 2:2:1:1 over two tiers, with ``tier-cost-scorer``, and
with ``tier-cost-picker``; prompts of 1,000 tokens. *new*: no endpoint holds any of the prompt. *shared*: every
endpoint holds nearly all of it. The three take turns, so that other load on the machine disturbs them alike.
*learning* is the time that one observed response takes when it ends, which delays no request. Wall time, medians: a
p99 would measure the other load.

Run: ``python -m benchmarks.picker.priced_decision [--only 8 64] [--json FILE]``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from random import Random

from benchmarks.index.prompts import WORKLOADS, new
from benchmarks.picker.cpu_per_request import CONFIG
from benchmarks.picker.decision import Picker
from epp.runtime.memory import collect_rarely, keep_freed_memory
from scorers.cost.constants import Constants
from scorers.cost.learning import Learner, Sample

ENDPOINTS = (8, 64, 1000)
TOKENS = 1_000
DECISIONS = 1_000
_HEAD = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: approx-prefix-cache-producer, name: gpu-prefix-cache-producer}
- type: approx-prefix-cache-producer
  name: cpu-prefix-cache-producer
  parameters: {autoTune: false, lruCapacityPerServer: 41000}
"""
POLICIES = {
    "2:2:1:1": CONFIG,
    "tier-cost-scorer": _HEAD + "- type: tier-cost-scorer\n",
    "tier-cost-picker": _HEAD + "- type: tier-cost-picker\n",
}


@dataclass
class Row:
    """One figure. Units: microseconds."""

    prompts: str
    endpoints: int
    policy: str
    median_us: float
    times_weights: float
    """The time over that of the weights, by the medians."""


def measure(workload: str, endpoints: int) -> list[Row]:
    """Time DECISIONS decisions of every policy, in turn."""
    pickers = {name: Picker(endpoints, config) for name, config in POLICIES.items()}
    collect_rarely()
    prompts = WORKLOADS[workload](TOKENS)
    for picker in pickers.values():
        picker.fill(new(TOKENS), once_each=True)
        if workload == "shared":
            picker.fill(prompts, once_each=True)
    seconds: dict[str, list[float]] = {name: [] for name in pickers}
    for number, prompt in enumerate(islice(prompts, DECISIONS + 50)):
        for name, picker in pickers.items():
            took = picker.decide(prompt)
            if number >= 50:
                seconds[name].append(took)
    weights = statistics.median(seconds["2:2:1:1"])
    return [
        Row(
            workload, endpoints, name,
            median_us=statistics.median(took) * 1e6,
            times_weights=statistics.median(took) / weights,
        )
        for name, took in seconds.items()
    ]  # fmt: skip


def learning_us() -> float:
    """Return the time of learning from one observed response, in µs."""
    learner, random, took = Learner(Constants()), Random(1), []
    for _ in range(DECISIONS):
        tokens = random.randrange(100, 30_000)
        sample = Sample(0.02 + tokens * 6e-5, tokens, 0, running=random.randrange(40))
        began = time.perf_counter()
        learner.observe(sample)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def show(rows: Sequence[Row], learning: float) -> None:
    """Print the rows as a table."""
    where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"One decision, microseconds, {DECISIONS:,} for each line; {where}.")
    print(f"{'prompts':<9}{'endpoints':>9}  {'policy':<18}{'median':>8}{'of 2:2:1:1':>12}")
    for row in rows:
        times = f"{row.median_us:>8.0f}{row.times_weights:>12.2f}"
        print(f"{row.prompts:<9}{row.endpoints:>9,}  {row.policy:<18}{times}")
    print(f"learning from one response: {learning:.0f}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=int, nargs="*", default=ENDPOINTS, metavar="N", help="these numbers of endpoints"
    )
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    args = parser.parse_args()
    keep_freed_memory()
    rows = [row for workload in WORKLOADS for endpoints in args.only for row in measure(workload, endpoints)]
    show(rows, learning_us())
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
