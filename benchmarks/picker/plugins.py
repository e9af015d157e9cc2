"""How long does each scorer, filter and picker take in one decision?

One plugin at a time, on 100 endpoints with labels, attributes and different loads, 30 of which hold some of the prompt
in two tiers; with the parameters below where the defaults would give a plugin no work. Median of many calls, wall time.

Run: ``python -m benchmarks.picker.plugins [--candidates N] [--json FILE]``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from scorers import PLUGINS
from scorers.base import CachedPrefix, Candidate, Filter, Picker, Request, Scorer, Slot, Tier

CALLS = 2_000
WRITTEN: Mapping[str, dict[str, Any]] = {
    "context-length-aware": {"enableFiltering": True},
    "endpoint-attribute-filter": {"attribute": "x", "algorithm": {"type": "topK", "topK": {"k": 50}}},
    "endpoint-attribute-scorer": {"attributeKey": "x", "algorithm": {"type": "linear_lower_is_better"}},
    "header-label-affinity-scorer": {"headerName": "x-zone", "labelKey": "zone"},
    "label-selector-filter": {"matchLabels": {"zone": "a", "llm-d.ai/role": "both"}},
    "by-label": {"label": "zone", "validValues": ["a"]},
    "topology-affinity-filter": {"peerTopologyHeader": "x-peer", "minAffinity": "region"},
    "topology-affinity-scorer": {"peerTopologyHeader": "x-peer"},
    "utilization-filter": {"conditions": [{"metric": "waiting-queue", "maxValue": 5}]},
}


@dataclass
class Row:
    """One figure. Units: microseconds."""

    plugin: str
    seam: str
    median_us: float


def world(count: int) -> tuple[Request, list[Candidate]]:
    """Return a request, and the endpoints to choose from."""
    random = Random(1)
    candidates = [
        Candidate(
            slot=Slot(i),
            address=f"10.0.{i >> 8}.{i & 255}:8000",
            name=f"ns/vllm-{i}",
            labels={
                "zone": "ab"[i & 1],
                "llm-d.ai/role": "both",
                "llm-d.ai/context-length-range": "0-32768",
                "topology.kubernetes.io/region": "r",
            },
            waiting=random.randrange(10),
            running=random.randrange(50),
            kv_usage=random.random(),
            in_flight=random.randrange(50),
            in_flight_tokens=random.randrange(100_000),
            attributes={"x": random.random()},
        )
        for i in range(count)
    ]
    held = {Slot(i): random.choice([640, 6_400, 9_600]) for i in range(0, count, 3)}
    headers = {
        "x-zone": "a",
        "x-peer": "host=h,region=r",
        "x-session-token": b64encode(f"ns/vllm-{count - 1}".encode()).decode(),
        "test-epp-endpoint-selection": "10.0.0.1,10.0.0.2",
    }
    cached = {
        "approx-prefix-cache-producer": CachedPrefix(Tier.GPU, 10_000, held),
        "cpu": CachedPrefix(Tier.CPU, 10_000, dict(held)),
    }
    return Request("r", "m", "m", prompt_tokens=10_000, headers=headers, cached=cached), candidates


def runs(count: int) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Yield the call of each plugin, by its name and kind."""
    request, candidates = world(count)
    scores = [Random(i).random() for i in range(count)]
    for kind in PLUGINS:
        parameters = msgspec.convert(WRITTEN.get(kind.type_name, {}), kind.Parameters)
        plugin = kind(parameters)
        if isinstance(plugin, Filter):
            yield kind.type_name, "filter", lambda plugin=plugin: plugin.keep(request, candidates)  # type: ignore[misc]
        if isinstance(plugin, Scorer):
            yield kind.type_name, "scorer", lambda plugin=plugin: plugin.score(request, candidates)  # type: ignore[misc]
        if isinstance(plugin, Picker):
            yield kind.type_name, "picker", lambda plugin=plugin: plugin.pick(candidates, scores)  # type: ignore[misc]


def measure(call: Callable[[], object]) -> float:
    """Return the median of CALLS calls. Units: microseconds."""
    seconds = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) * 1e6


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=100, metavar="N")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    args = parser.parse_args()
    rows = [Row(name, seam, measure(call)) for name, seam, call in runs(args.candidates)]
    where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"One call on {args.candidates} candidates, median of {CALLS:,}, microseconds; {where}.")
    for row in rows:
        print(f"{row.plugin:<34}{row.seam:<8}{row.median_us:>8.1f}")
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
