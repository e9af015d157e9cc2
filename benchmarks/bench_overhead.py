"""How much of an engine's output does kvengine cost when nothing is ever reused?

Two engines of vLLM's CPU backend, in processes of their own, with and without the connector, answer batches of prompts
that nobody has seen before: one batch each in turn, the order changing from pair to pair, while the other engine
sleeps. All prompts are stored; none is ever found. What is compared are the two times of a pair; the interval is that
of the median over pairs (order statistics, 95 % or more, whatever the noise looks like). CPU time is that of all of an
engine's processes, which neighbours on the machine disturb less. The model has random weights,
and its decode steps take 50 ms or more. Each engine computes in one
thread: on a machine that others use, too, two would wait for each other.

Then ``step_cost``: microseconds per step at 1, 64 and 512 running requests.

Run in the environment of ``tests/vllm/environment.py``: ``python -m benchmarks.bench_overhead [--pairs 24]``. About
eight minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from benchmarks import step_cost
from benchmarks.interval import median_interval
from benchmarks.kvengine_transfer import transfer
from benchmarks.two_pass import CPU_ENVIRONMENT
from tests.vllm.model import Shape, make_model

if TYPE_CHECKING:
    from vllm import LLM

SHAPE = Shape(hidden=768, layers=12, inner=3072, heads=12, kv_heads=4, head_size=64, spread=0.05)
"""About 100 million parameters: 0.4 GB in float32, which one thread reads in each step."""
REQUESTS, PROMPT_TOKENS, ANSWER_TOKENS = 4, 72, 24
"""Of a batch."""
CHUNK_TOKENS = 64
"""One chunk of each prompt is stored."""
LEAST_STEP_S = 0.05
LEAST_PAIRS = 20


class Batch(NamedTuple):
    """One batch. Units: seconds."""

    prefill: float
    decode_step: float
    total: float
    cpu: float
    """Of all of the engine's processes and threads."""


class Engine:
    """vLLM with its processes, which are this process's youngest children."""

    def __init__(self, model: Path, *, offload: bool) -> None:
        before = set(psutil.Process().children(recursive=True))
        self.llm = start(model, offload=offload)
        self._processes = set(psutil.Process().children(recursive=True)) - before

    def cpu_s(self) -> float:
        times = [process.cpu_times() for process in self._processes if process.is_running()]
        return sum(each.user + each.system for each in times)


def start(model: Path, *, offload: bool) -> LLM:
    from vllm import LLM

    options: dict[str, Any] = {}
    if offload:
        options["kv_transfer_config"] = transfer(max_local_cpu_size=0.5, chunk_size=CHUNK_TOKENS)
    return LLM(
        model=str(model), dtype="float32", enforce_eager=True, skip_tokenizer_init=True, block_size=32,
        max_model_len=2048, max_num_batched_tokens=2048, enable_prefix_caching=True, disable_log_stats=False, **options,
    )  # fmt: skip


def batch(engine: Engine, random: Random) -> Batch:
    """Answer a batch of prompts that are new."""
    from vllm import SamplingParams

    prompts = [
        {"prompt_token_ids": [random.randrange(10, SHAPE.vocabulary) for _ in range(PROMPT_TOKENS)]}
        for _ in range(REQUESTS)
    ]
    sampling = SamplingParams(temperature=0, max_tokens=ANSWER_TOKENS, ignore_eos=True, detokenize=False)
    cpu, began = engine.cpu_s(), time.perf_counter()
    answers = engine.llm.generate(prompts, sampling, use_tqdm=False)
    total, cpu = time.perf_counter() - began, engine.cpu_s() - cpu
    first = max(answer.metrics.first_token_ts for answer in answers)
    last = max(answer.metrics.last_token_ts for answer in answers)
    decode = (last - first) / (ANSWER_TOKENS - 1)
    return Batch(total - (last - first), decode, total, cpu)


def measured(model: Path, pairs: int) -> list[tuple[Batch, Batch]]:
    """Without and with, pair by pair."""
    random = Random(0)
    plain, tested = Engine(model, offload=False), Engine(model, offload=True)
    done = []
    for engine in (plain, tested, plain, tested):  # warm up
        batch(engine, random)
    for number in range(pairs):
        if number % 2:
            without = batch(plain, random)
            with_it = batch(tested, random)
        else:
            with_it = batch(tested, random)
            without = batch(plain, random)
        done.append((without, with_it))
        lost = statistics.median(b.total / a.total for a, b in done) - 1
        print(f"\rpair {number + 1} of {pairs}: {lost:+.2%} so far", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    hits = sum(m.value for m in tested.llm.get_metrics() if m.name == "vllm:external_prefix_cache_hits")
    for engine in (plain, tested):
        engine.llm.llm_engine.engine_core.shutdown()
    if hits:
        raise RuntimeError(f"{hits} tokens were found again; nothing was to be reused")
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=24, help=f"at least {LEAST_PAIRS} for a result to be kept")
    asked = parser.parse_args()
    os.environ.update(
        CPU_ENVIRONMENT | {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    )
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        pairs = measured(make_model(Path(folder), shape=SHAPE), asked.pairs)
    steps = statistics.median(without.decode_step for without, _ in pairs)
    tokens = REQUESTS * ANSWER_TOKENS
    before, after = ("/".join(f"{each:.1f}" for each in loads) for loads in (load, os.getloadavg()))
    print(
        f"Output lost when nothing is reused; {len(pairs)} interleaved pairs of batches of {REQUESTS} requests, each of"
    )
    print(f"{PROMPT_TOKENS} prompt and {ANSWER_TOKENS} answer tokens; vLLM on CPUs, float32, random weights")
    print(f"{os.cpu_count()} cores, load {before} at the start and {after} at the end")
    slow = "" if steps >= LEAST_STEP_S else f" (less than {LEAST_STEP_S * 1e3:.0f} ms: a larger model is needed here)"
    print(f"a decode step takes {steps * 1e3:.0f} ms{slow}\n")
    print("           without     with   lost, median   95 % interval")
    for name, unit, value in (
        ("tokens/s", 1, lambda each: tokens / each.total),
        ("prefill s", 1, lambda each: each.prefill),
        ("step ms", 1e3, lambda each: each.decode_step),
        ("CPU s", 1, lambda each: each.cpu),
    ):
        without = statistics.median(value(a) for a, _ in pairs) * unit
        with_it = statistics.median(value(b) for _, b in pairs) * unit
        each = [value(a) / value(b) if name == "tokens/s" else value(b) / value(a) for a, b in pairs]
        low, middle, high = (x - 1 for x in median_interval(each))
        print(f"{name:9} {without:8.2f} {with_it:8.2f} {middle:+14.2%}   {low:+.2%} to {high:+.2%}")
    print(flush=True)
    step_cost.report()
    return 0


if __name__ == "__main__":  # the engines' processes import this module again
    sys.exit(main())
