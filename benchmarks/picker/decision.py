"""How long does one decision take: hash, match, score, pick, record?

``Director.decide`` with the default profile (queue 2, KV utilization 2, prefix on GPU 1, prefix on CPU 1; both tiers'
capacities configured), two endpoints picked for each request, on an index that already holds up to FILLED_BLOCKS
blocks. The prompt comes as text, without JSON parsing. The garbage collector runs as it does in ``tierwise serve``,
and its time is counted, also between two decisions. Wall time.

*new*: prompts that share nothing. *shared*: one long prefix that every endpoint holds, and 256 new tokens.

Run: ``python -m benchmarks.picker.decision [--only 25 100] [--json FILE]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from random import Random

from typing_extensions import override

from benchmarks.index.prompts import WORKLOADS, new
from benchmarks.picker.cpu_per_request import CONFIG
from epp.config.wiring.build import plan_from
from epp.decision import Cause, Outcome, RequestHead
from epp.metrics.telemetry import Telemetry
from epp.parsers.base import Parsed, Parser, Reader
from epp.picking.director import Director
from epp.picking.request_steps import RequestSteps
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, EngineMetrics, Pool
from epp.runtime.memory import collect_rarely, keep_freed_memory
from scorers.base import NoParameters, Prompt, Slot

ENDPOINTS = (5, 25, 100, 1000)
TOKENS = (1_000, 10_000, 100_000)
FILLED_BLOCKS = 300_000
IN_FLIGHT = 64
DECISIONS = 1_500
HEAD = RequestHead({":path": "/v1/completions", "x-request-id": "1"})


class Given(Parser[NoParameters]):
    """A parser that returns the prompt that was set before, whatever the body."""

    type_name = "given"
    prompt = Prompt(b"m", b"")

    @override
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        return Parsed("m", "m", (self.prompt,), len(self.prompt.data) // 4, streaming=True)


class Collections:
    """Measures the time of garbage collections, in total and of the longest one. Units: seconds."""

    def __init__(self) -> None:
        self.total_s = self.longest_s = 0.0
        self._began = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:  # noqa: ARG002
        """Count a collection; called by the collector when one starts and when it stops."""
        if phase == "start":
            self._began = time.perf_counter()
        else:
            took = time.perf_counter() - self._began
            self.total_s += took
            self.longest_s = max(self.longest_s, took)


class Picker:
    """A picker without its transport."""

    def __init__(self, endpoints: int, config: str = CONFIG, reader: Reader | None = None) -> None:
        """``reader`` parses bodies; without one, prompts are set directly."""
        plan = plan_from(None, config, picks=2)
        self.parser = Given()
        self.pool = Pool()
        ledger = Ledger(self.pool)
        assert plan.prefix_cache is not None  # CONFIG has two producers
        self.pool.listeners.append(plan.prefix_cache)
        self.index = plan.prefix_cache.index
        self.director = Director(RequestSteps(reader or self.parser, plan.profile), self.pool, ledger, Telemetry())
        self.pool.replace([Endpoint(f"10.{i >> 8}.{i & 255}.1:8000") for i in range(endpoints)])
        random = Random(1)
        for candidate in self.pool.candidates():
            load = EngineMetrics(random.randrange(4), 8, random.random(), block_tokens=16, gpu_blocks=31_250)
            self.pool.observe(candidate.slot, load, time.monotonic())
        self._open: deque[int] = deque()

    def fill(self, prompts: Iterator[Prompt], *, once_each: bool) -> None:
        """Let every endpoint hold a prompt; unless ``once_each``, add prompts until the index is large."""
        blocks = 0
        slots = [candidate.slot for candidate in self.pool.candidates()]
        for number, prompt in enumerate(prompts):
            if number >= len(slots) and (once_each or blocks >= FILLED_BLOCKS):
                return
            match = self.index.match(prompt)
            self.index.record(match, Slot(slots[number % len(slots)]))
            blocks += match.blocks

    def decide(self, prompt: Prompt) -> float:
        """Return the seconds of one decision. The oldest of IN_FLIGHT requests ends before it, unmeasured."""
        if len(self._open) >= IN_FLIGHT:
            self.director.picks.ended(self._open.popleft(), Outcome(Cause.COMPLETED))
        self.parser.prompt = prompt
        began = time.perf_counter()
        decision = self.director.decide(HEAD, b"")
        took = time.perf_counter() - began
        self._open.append(decision.pick_id)
        return took


@dataclass
class Row:
    """One figure. Units: milliseconds."""

    prompts: str
    endpoints: int
    tokens: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    longest_collection_ms: float
    blocks: int
    """Blocks in the index during the measurement."""


def measure(workload: str, endpoints: int, tokens: int) -> Row:
    """Time DECISIONS decisions and return their row."""
    gc.unfreeze()
    picker = Picker(endpoints)
    collect_rarely()  # with an empty index, as when a picker starts
    picker.fill(new(min(tokens, 10_000)), once_each=False)
    prompts = WORKLOADS[workload](tokens)
    if workload == "shared":
        picker.fill(prompts, once_each=True)
    for prompt in islice(prompts, 100):
        picker.decide(prompt)
    collections = Collections()
    gc.callbacks.append(collections)
    seconds, counted = [], 0.0
    for prompt in islice(prompts, DECISIONS):
        between = collections.total_s - counted
        seconds.append(between + picker.decide(prompt))
        counted = collections.total_s
    gc.callbacks.remove(collections)
    return Row(
        workload, endpoints, tokens,
        mean_ms=statistics.fmean(seconds) * 1000,
        p50_ms=statistics.median(seconds) * 1000,
        p99_ms=statistics.quantiles(seconds, n=100)[98] * 1000,
        longest_ms=max(seconds) * 1000,
        longest_collection_ms=collections.longest_s * 1000,
        blocks=picker.index.statistics().blocks,
    )  # fmt: skip


@dataclass
class Goal:
    """A bound for one figure, and the measured value."""

    text: str
    bound: float
    measured: float

    @property
    def met(self) -> bool:
        """Whether the measured value is within the bound."""
        return self.measured <= self.bound


def goals(rows: Sequence[Row]) -> Iterator[Goal]:
    """Yield the targets for 100 endpoints beside the measured values."""
    at = {(row.prompts, row.tokens): row for row in rows if row.endpoints == 100}
    for workload in WORKLOADS:
        if (workload, 1_000) in at:
            yield Goal(f"{workload}, 1k tokens: mean, ms", 0.15, at[workload, 1_000].mean_ms)
            yield Goal(f"{workload}, 100k tokens: p99, ms", 1.0, at[workload, 100_000].p99_ms)
    if ("shared", 1_000) in at:
        ratio = at["shared", 100_000].mean_ms / at["shared", 1_000].mean_ms
        yield Goal("shared, mean at 100k tokens over mean at 1k", 3.0, ratio)


def show(rows: Sequence[Row]) -> None:
    """Print the rows and the targets."""
    where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"One decision, milliseconds, {DECISIONS} for each line; {where}.")
    columns = f"{'mean':>8}{'p50':>8}{'p99':>8}{'longest':>9}{'longest collection':>20}{'blocks in index':>17}"
    print(f"{'prompts':<9}{'endpoints':>9}{'tokens':>9}{columns}")
    for row in rows:
        times = f"{row.mean_ms:>8.3f}{row.p50_ms:>8.3f}{row.p99_ms:>8.3f}{row.longest_ms:>9.2f}"
        line = f"{row.prompts:<9}{row.endpoints:>9,}{row.tokens:>9,}{times}"
        print(f"{line}{row.longest_collection_ms:>20.2f}{row.blocks:>17,}")
    print(f"\n{'100 endpoints':<46}{'target':>8}{'measured':>10}")
    for goal in goals(rows):
        print(f"{goal.text:<46}{goal.bound:>8g}{goal.measured:>10.3f}  {'met' if goal.met else 'MISSED'}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=int, nargs="*", default=ENDPOINTS, metavar="N", help="these numbers of endpoints"
    )
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    args = parser.parse_args()
    keep_freed_memory()
    rows = []
    for workload in WORKLOADS:
        for endpoints in args.only:
            for tokens in TOKENS:
                rows.append(measure(workload, endpoints, tokens))
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    show(rows)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
