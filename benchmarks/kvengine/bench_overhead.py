"""How much of an engine's output does kvengine cost when nothing is ever reused?

One engine of vLLM's CPU backend, in this process, serves batches of new prompts, alternately with its connector and
without, in an order that is drawn for each pair: between batches the connector is taken out of vLLM's scheduler, its
worker and its block pool, and put back. All prompts are stored; none is ever found. The model has random weights, and
its decode steps take 50 ms or more. It computes in one thread: on a shared machine two threads would wait for each
other.

One engine, because two differ for as long as they live, by where their memory lies: with new engines for each of ten
rounds of five pairs, the result of a round varied from -7 to +13 %, which no number of pairs would have shown.

The two times of a pair are compared as a ratio; the interval is that of the center of all ratios
(``interval.shift_interval``, which holds for any noise). The wall clock is what a user sees. The CPU time of all
threads includes what the connector does in the background, until the last copy has ended. The verdict is against 1 %,
and is given only where an interval lies on one side of it.

Then ``step_cost``: microseconds per step at 1, 64 and 512 running requests.

Run in the environment of ``tests/vllm/environment.py``: ``python -m benchmarks.kvengine.bench_overhead``, on a quiet
machine: ten minutes on two cores. ``--minutes`` ends the pairs earlier.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.kvengine import step_cost
from benchmarks.kvengine.kvengine_transfer import transfer
from benchmarks.kvengine.two_pass import CPU_ENVIRONMENT
from benchmarks.rig.interval import Interval, shift_interval
from benchmarks.rig.machine import machine
from tests.vllm.engine import series
from tests.vllm.model import Shape, make_model

if TYPE_CHECKING:
    from vllm import LLM

SHAPE = Shape(hidden=896, layers=16, inner=3584, heads=14, kv_heads=2, head_size=64, spread=0.05)
"""About 185 million parameters: 0.7 GB in float32, which one thread reads in each step."""
REQUESTS, PROMPT_TOKENS, ANSWER_TOKENS = 4, 40, 16
"""Requests of a batch, and the tokens of each prompt and response."""
BLOCK_TOKENS = CHUNK_TOKENS = 32
"""One chunk of each prompt is stored."""
LEAST_STEP_S = 0.05
LEAST_PAIRS = 20
MOST_LOST = 0.01


class Batch(NamedTuple):
    """The times of one batch. Units: seconds."""

    prefill: float
    decode_step: float
    total: float
    cpu: float
    """CPU time of all threads, until the last copy has ended."""


class Engine:
    """A vLLM engine in this process, with a connector that can be taken out."""

    def __init__(self, model: Path) -> None:
        from vllm.distributed.kv_transfer import kv_transfer_state

        self.llm = start(model)
        self.core: Any = self.llm.llm_engine.engine_core.engine_core
        self._scheduler = self.core.scheduler
        self._pool = self._scheduler.kv_cache_manager.block_pool
        self._state = kv_transfer_state
        self.connector = self._scheduler.connector
        self._agent = kv_transfer_state.get_kv_transfer_group()
        self._watch = self._pool.metrics_collector

    def offload(self, wanted: bool) -> None:
        """Turn offloading on or off, from the next batch on."""
        self._scheduler.connector = self.connector if wanted else None
        self._state._KV_CONNECTOR_AGENT = self._agent if wanted else None
        self._pool.metrics_collector = self._watch if wanted else self._watch._before
        self._pool.free_blocks = self._watch._freed if wanted else self._watch._free

    def settle(self) -> None:
        """Return once everything that was ordered has been stored."""
        while self.connector.has_pending_push_work():
            self.core.step()
            time.sleep(0.001)


def start(model: Path) -> LLM:
    import torch
    from vllm import LLM

    torch.set_num_threads(1)
    return LLM(
        model=str(model), dtype="float32", enforce_eager=True, skip_tokenizer_init=True, block_size=BLOCK_TOKENS,
        max_model_len=2048, max_num_batched_tokens=2048, enable_prefix_caching=True, disable_log_stats=False,
        kv_transfer_config=transfer(max_local_cpu_size=0.5, chunk_size=CHUNK_TOKENS),
    )  # fmt: skip


def batch(engine: Engine, random: Random, *, offload: bool) -> Batch:
    """Serve a batch of new prompts and return its times."""
    from vllm import SamplingParams

    prompts = [
        {"prompt_token_ids": [random.randrange(10, SHAPE.vocabulary) for _ in range(PROMPT_TOKENS)]}
        for _ in range(REQUESTS)
    ]
    sampling = SamplingParams(temperature=0, max_tokens=ANSWER_TOKENS, ignore_eos=True, detokenize=False)
    engine.offload(offload)
    cpu, began = time.process_time(), time.perf_counter()
    answers = engine.llm.generate(prompts, sampling, use_tqdm=False)
    total = time.perf_counter() - began
    if offload:
        engine.settle()
    cpu = time.process_time() - cpu
    first = max(answer.metrics.first_token_ts for answer in answers)
    last = max(answer.metrics.last_token_ts for answer in answers)
    decode = (last - first) / (ANSWER_TOKENS - 1)
    return Batch(total - (last - first), decode, total, cpu)


Pairs = list[tuple[Batch, Batch]]
"""Batches without kvengine, each with its pair."""


def lost(pairs: Pairs, of: Callable[[Batch], float]) -> Interval:
    """Return by how much kvengine lengthens a time of a batch, as a share."""
    return Interval(*(math.exp(x) - 1 for x in shift_interval([math.log(of(b) / of(a)) for a, b in pairs])))


def verdict(found: Interval) -> str:
    """Return the verdict against the largest loss that is accepted."""
    most = f"{MOST_LOST:.0%}"
    if found.high <= MOST_LOST:
        return f"met: at most {max(found.high, 0):.2%} is lost"
    if found.low > MOST_LOST:
        return f"MISSED: at least {found.low:.2%} is lost"
    return f"no verdict: the interval holds {most}; more pairs, or a quieter machine"


def measured(model: Path, pairs: int, until_s: float) -> Pairs:
    """Measure ``pairs`` pairs, or fewer when the time ends.

    Raises: RuntimeError when something was reused, or too little was stored.
    """
    random = Random(0)
    engine = Engine(model)
    for offload in (False, True, False, True):  # warm up
        batch(engine, random, offload=offload)
    before = series("kvengine:stored_tokens_total")
    done: Pairs = []
    while len(done) < pairs and (len(done) < LEAST_PAIRS or time.monotonic() < until_s):
        took = {offload: batch(engine, random, offload=offload) for offload in random.sample((False, True), 2)}
        done.append((took[False], took[True]))
        say(done, pairs)
    print(file=sys.stderr)
    engine.offload(True)
    hits = sum(m.value for m in engine.llm.get_metrics() if m.name == "vllm:external_prefix_cache_hits")
    stored = series("kvengine:stored_tokens_total") - before
    engine.core.shutdown()
    expected = (len(done) - 1) * REQUESTS * CHUNK_TOKENS  # those of the last batch may not be counted yet
    if hits or stored < expected:
        raise RuntimeError(
            f"{hits:.0f} tokens found again, and {stored:.0f} stored; nothing was to be reused, and {expected} stored"
        )
    return done


def say(done: Pairs, pairs: int) -> None:
    """Show the progress and the intervals so far on standard error."""
    if len(done) < 6:
        return
    shown = []
    for name, of in (("wall", total_of), ("CPU", cpu_of)):
        low, middle, high = lost(done, of)
        shown.append(f"{name} {middle:+.2%} ({low:+.2%} to {high:+.2%})")
    print(f"\rpair {len(done)} of {pairs}: {', '.join(shown)}   ", end="", file=sys.stderr, flush=True)


def total_of(each: Batch) -> float:
    return each.total


def cpu_of(each: Batch) -> float:
    return each.cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200, help=f"at least {LEAST_PAIRS} for a result to be kept")
    parser.add_argument("--minutes", type=float, default=8.5, help=f"after {LEAST_PAIRS} pairs, no more begin then")
    args = parser.parse_args()
    here = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    os.environ.update(CPU_ENVIRONMENT | here | {"OMP_NUM_THREADS": "1"})
    before = "/".join(f"{each:.1f}" for each in os.getloadavg())
    until_s = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as folder:
        pairs = measured(make_model(Path(folder), shape=SHAPE), args.pairs, until_s)
    steps = statistics.median(without.decode_step for without, _ in pairs)
    tokens = REQUESTS * ANSWER_TOKENS
    print(f"Time added when nothing is reused; {len(pairs)} interleaved pairs of batches of {REQUESTS} requests, each")
    print(f"of {PROMPT_TOKENS} prompt and {ANSWER_TOKENS} answer tokens; one engine of vLLM on a CPU, float32, random")
    print("weights")
    print(f"{machine()} at the end, {before} at the start")
    slow = "" if steps >= LEAST_STEP_S else f" (less than {LEAST_STEP_S * 1e3:.0f} ms: a larger model is needed here)"
    print(f"a decode step takes {steps * 1e3:.0f} ms{slow}\n")
    print("per token       without     with      added   95 % interval")
    rows: dict[str, Callable[[Batch], float]] = {
        "wall ms": total_of,
        "CPU ms": cpu_of,
        "of a step, ms": lambda each: each.decode_step * tokens,
        "of a prefill": lambda each: each.prefill,
    }
    for name, of in rows.items():
        without, with_it = (statistics.median(of(pair[n]) for pair in pairs) / tokens * 1e3 for n in (0, 1))
        low, middle, high = lost(pairs, of)
        print(f"{name:13} {without:9.2f} {with_it:8.2f} {middle:+10.2%}   {low:+.2%} to {high:+.2%}")
    print(f"\noutput lost, at most {MOST_LOST:.0%}, by the wall clock: {verdict(lost(pairs, total_of))}")
    print(f"                       by CPU time: {verdict(lost(pairs, cpu_of))}\n", flush=True)
    step_cost.report()
    return 0


if __name__ == "__main__":  # the engines' processes import this module again
    sys.exit(main())
