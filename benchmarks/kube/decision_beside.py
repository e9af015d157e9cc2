"""How much longer does a decision take while pods change a hundred times a second?

One picker with as many endpoints as pods. Stretches with and without changes take turns; in both, decisions are made at
an even rate on the event loop that applies the changes. A stretch's figure is the 99th percentile of its decisions.

Run: ``python -m benchmarks.kube.decision_beside [--pods 1000] [--pairs 10] [--seconds 3] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
from collections.abc import Iterator

import uvloop

from benchmarks.index.prompts import new
from benchmarks.kube.following import CHANGES_PER_S, quantile
from benchmarks.picker.decision import Picker
from benchmarks.rig.interval import shift_interval
from benchmarks.rig.machine import machine
from epp.discovery.pool_keeper import PoolKeeper
from epp.runtime.memory import collect_rarely
from scorers.base import Prompt
from tests.epp.discovery.pods import pod

DECISIONS_PER_S = 200
TOKENS = 10_000
TARGET = 5.0


class Beside:
    """A picker, and pods whose changes it follows."""

    def __init__(self, pods: int) -> None:
        self.picker = Picker(pods)
        self.keeper = PoolKeeper(self.picker.pool)  # the changes are given directly
        self.keeper.ports = (8000,)
        states = [
            [
                pod(f"p{n}", ip=f"10.{n >> 8}.{n & 255}.1", labels={"app": "vllm", "turn": str(turn)})
                for n in range(pods)
            ]
            for turn in range(2)
        ]
        self._changes = itertools.cycle(itertools.chain(*states))
        self._prompts: Iterator[Prompt] = new(TOKENS)

    async def stretch(self, seconds: float, *, changing: bool) -> float:
        """Return the 99th percentile of the decisions in a stretch, in seconds."""
        loop, took = asyncio.get_running_loop(), list[float]()
        began, decisions = loop.time(), int(seconds * DECISIONS_PER_S)
        for number in range(decisions):
            await asyncio.sleep(max(0.0, began + number / DECISIONS_PER_S - loop.time()))
            if changing and number % (DECISIONS_PER_S // CHANGES_PER_S) == 0:
                self.keeper.changed(next(self._changes))
            took.append(self.picker.decide(next(self._prompts)))
        return quantile(took, 0.99)


async def measure(pods: int, pairs: int, seconds: float) -> list[float]:
    """Return by how much changes move the 99th percentile, in percent, by pair."""
    beside = Beside(pods)
    collect_rarely()
    await beside.stretch(seconds, changing=True)
    moved = list[float]()
    for _ in range(pairs):
        found = dict.fromkeys((True, False), 0.0)
        for changing in random.sample((True, False), 2):
            found[changing] = await beside.stretch(seconds, changing=changing)
        moved.append(100 * (found[True] / found[False] - 1))
        print(f"at rest {found[False] * 1e3:.3f} ms, changing {found[True] * 1e3:.3f} ms", file=sys.stderr)
    return moved


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one stretch")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = shift_interval(uvloop.run(measure(given.pods, given.pairs, given.seconds)))
    if given.json:
        print(json.dumps({"percent": found.median, "low": found.low, "high": found.high}))
        return
    verdict = "MISSED" if found.median > TARGET else "met"
    print(f"{given.pods:,} pods, {CHANGES_PER_S} changes and {DECISIONS_PER_S} decisions a second; {machine()}\n")
    print(f"p99 of a decision moves by {found.median:+.1f} % ({found.low:+.1f} to {found.high:+.1f})")
    print(f"target {TARGET:g} %: {verdict}")


if __name__ == "__main__":
    main()
