"""What does the prefix index cost in one decision: hash, match in two tiers, record?

Beside it the flat index of ``benchmarks.index.flat_index`` on the same prompts, in the same run. CPU time of this
thread, so that neighbours do not count; garbage collection is included. Run: ``python -m benchmarks.index.prefix_time
[--json]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice

from benchmarks.index.flat_index import FlatIndex
from benchmarks.index.prompts import WORKLOADS
from scorers.base import Prompt, Slot
from scorers.index.index import PrefixIndex

CAPACITIES_TOKENS = [500_000, 1_300_000]
ENDPOINTS = (5, 25, 100, 1000)
TOKENS = (1_000, 10_000, 100_000)


def timed(decide: Callable[[Prompt, Slot], object], prompts: Iterator[Prompt], slots: int, count: int) -> list[float]:
    """CPU seconds for each of ``count`` decisions, after every endpoint has had one."""
    turns = cycle(range(slots))
    for prompt in islice(prompts, min(slots, 200)):
        decide(prompt, Slot(next(turns)))
    gc.collect()
    gc.freeze()
    seconds = []
    for prompt in islice(prompts, count):
        slot = Slot(next(turns))
        began = time.thread_time()
        decide(prompt, slot)
        seconds.append(time.thread_time() - began)
    gc.unfreeze()
    return seconds


def row(workload: str, endpoints: int, tokens: int) -> dict[str, float | str]:
    count = 300 if tokens == 100_000 else 1000
    index = PrefixIndex(len(CAPACITIES_TOKENS))
    for slot in range(endpoints):
        for tier, capacity in enumerate(CAPACITIES_TOKENS):
            index.set_capacity(Slot(slot), tier, capacity)
    flat = FlatIndex(endpoints, CAPACITIES_TOKENS)
    ours = timed(lambda p, s: index.record(index.match(p), s), WORKLOADS[workload](tokens), endpoints, count)
    theirs = timed(flat.decide, WORKLOADS[workload](tokens), endpoints, count // 10)
    return {
        "workload": workload,
        "endpoints": endpoints,
        "tokens": tokens,
        "mean_us": statistics.fmean(ours) * 1e6,
        "p50_us": statistics.median(ours) * 1e6,
        "p99_us": statistics.quantiles(ours, n=100)[98] * 1e6,
        "flat_p50_us": statistics.median(theirs) * 1e6,
        "ratio": statistics.median(ours) / statistics.median(theirs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    rows = [row(workload, n, tokens) for workload in WORKLOADS for n in ENDPOINTS for tokens in TOKENS]
    if as_json:
        print(json.dumps(rows))
        return
    print(f"CPU µs for hash, match and record in two tiers; {platform.machine()}, Python {platform.python_version()}")
    print(
        f"{'prompts':8} {'endpoints':>9} {'tokens':>8} {'mean':>8} {'p50':>8} {'p99':>8} {'flat p50':>9} {'ratio':>7}"
    )
    for r in rows:
        print(
            f"{r['workload']:8} {r['endpoints']:9} {r['tokens']:8,} {r['mean_us']:8.1f} {r['p50_us']:8.1f}"
            f" {r['p99_us']:8.1f} {r['flat_p50_us']:9.1f} {r['ratio']:7.3f}"
        )


if __name__ == "__main__":
    main()
