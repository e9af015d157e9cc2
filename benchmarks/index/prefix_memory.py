"""How much memory does the prefix index take for each block that an endpoint holds?

Both tiers together, by the growth of a process of its own with 100 endpoints; beside it the flat index of
``benchmarks.index.flat_index``. Run: ``python -m benchmarks.index.prefix_memory [--json]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random

from benchmarks.index.flat_index import FlatIndex
from scorers.base import Prompt, Slot
from scorers.index.index import PrefixIndex

ENDPOINTS = 100
CAPACITIES_TOKENS = [250_000, 1_000_000]
Work = Iterator[tuple[Prompt, Slot]]


def unshared(endpoints: int) -> Work:
    """Prompts of 4k tokens that share nothing, until every CPU tier is full."""
    random = Random(1)
    for _ in range(CAPACITIES_TOKENS[1] // 4096):
        for slot in range(endpoints):
            yield Prompt(b"m", random.randbytes(4 * 4096)), Slot(slot)


def shared(endpoints: int) -> Work:
    """30 system prompts of 30k tokens, each with an own question of 256 tokens sent to every endpoint."""
    random = Random(1)
    for _ in range(30):
        system = random.randbytes(4 * 30_000)
        for slot in range(endpoints):
            yield Prompt(b"m", system + random.randbytes(4 * 256)), Slot(slot)


WORKLOADS: dict[str, Callable[[int], Work]] = {"4k tokens, nothing shared": unshared, "30k tokens shared": shared}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def tree(workload: str) -> dict[str, float]:
    index = PrefixIndex(len(CAPACITIES_TOKENS))
    for slot in range(ENDPOINTS):
        for tier, tokens in enumerate(CAPACITIES_TOKENS):
            index.set_capacity(Slot(slot), tier, tokens)
    before = resident_bytes()
    for prompt, slot in WORKLOADS[workload](ENDPOINTS):
        index.record(index.match(prompt), slot)
    grown = resident_bytes() - before
    return {"blocks": index.statistics().blocks, "bytes": grown}


def flat(workload: str) -> dict[str, float]:
    endpoints = ENDPOINTS // 10  # as much again for each endpoint; a tenth of them is enough to see it
    index = FlatIndex(endpoints, CAPACITIES_TOKENS)
    before = resident_bytes()
    for prompt, slot in WORKLOADS[workload](endpoints):
        index.decide(prompt, slot)
    blocks = sum(len(recent) for recent in index.tiers[1].recent)
    return {"blocks": blocks, "bytes": resident_bytes() - before}


def alone(measure: Callable[[str], dict[str, float]], workload: str) -> dict[str, float]:
    """The result of a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(measure, workload).result()
    return {**found, "bytes_per_block": found["bytes"] / found["blocks"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    rows = {name: {"tree": alone(tree, name), "flat": alone(flat, name)} for name in WORKLOADS}
    if as_json:
        print(json.dumps(rows))
        return
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    print(f"bytes for each (block, endpoint), two tiers, {ENDPOINTS} endpoints; {machine}")
    print(f"{'workload':28} {'pairs':>10} {'MB':>7} {'bytes':>7} {'flat':>7} {'ratio':>7}")
    for name, row in rows.items():
        ours, theirs = row["tree"], row["flat"]
        ratio = ours["bytes_per_block"] / theirs["bytes_per_block"]
        print(
            f"{name:28} {ours['blocks']:10,.0f} {ours['bytes'] / 1e6:7.1f} {ours['bytes_per_block']:7.2f}"
            f" {theirs['bytes_per_block']:7.1f} {ratio:7.4f}"
        )


if __name__ == "__main__":
    main()
