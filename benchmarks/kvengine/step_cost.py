"""How many microseconds does kvengine add to an engine's step, while nothing is stored or loaded?

vLLM's own scheduler, with the connector, decodes; no model runs, each request gets its next token at once. Timers
around the connector's methods measure the scheduler's side; beside them are the same steps of a second scheduler
without the connector, in turn: the difference includes what is done for the connector elsewhere (watched blocks, vLLM's
own bookkeeping), and the noise of two long times. Then the methods that a worker calls once a step, on a real worker
with its arena and copier, and the method of the front end, which observes the statistics in another process. Medians of
the wall clock.

Run in the environment of ``tests/vllm/environment.py``: ``python -m benchmarks.kvengine.step_cost [--json]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from benchmarks.kvengine.kvengine_transfer import transfer

BLOCK_TOKENS = 16
CHUNK_TOKENS = 256
PROMPT_TOKENS = 1024
RUNNING = (1, 64, 512)
WARM_UP = 40
STEPS = 200
LAYERS, KV_HEADS, HEAD_SIZE = 4, 1, 16


class Step(NamedTuple):
    """The seconds of one step."""

    schedule: float
    update: float


class Row(NamedTuple):
    """One row. Units: microseconds per step, medians."""

    running: int
    without: float
    """The time of vLLM's scheduler without the connector."""
    scheduler: float
    """The time in the connector's methods on the scheduler's side."""
    difference: float
    """The difference between a step with the connector and the same step without."""
    worker: float
    front_end: float


def config_of(model: Path, *, offload: bool, prefix_caching: bool = True) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    options: dict[str, Any] = {}
    if offload:
        options["kv_transfer_config"] = transfer(cpu_bytes_to_use=1 << 30, chunk_size=CHUNK_TOKENS)
    return EngineArgs(
        model=str(model), dtype="float32", enforce_eager=True, skip_tokenizer_init=True, block_size=BLOCK_TOKENS,
        max_model_len=4096, max_num_seqs=max(RUNNING), max_num_batched_tokens=max(RUNNING) * PROMPT_TOKENS,
        enable_prefix_caching=prefix_caching, async_scheduling=False, **options,
    ).create_engine_config()  # fmt: skip


def cache_config(blocks: int) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor

    spec = FullAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=KV_HEADS, head_size=HEAD_SIZE, dtype=torch.float32)
    layers = [f"layer.{number}" for number in range(LAYERS)]
    page = spec.page_size_bytes
    tensor = KVCacheTensor(size=page * blocks * LAYERS, layers=layers, layer_stride=page * blocks, block_stride=page)
    return KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[tensor], kv_cache_groups=[KVCacheGroupSpec(layers, spec)])


class Timers:
    """Measures the seconds in a connector's methods that are called once a step, since the last ``take``."""

    METHODS = ("build_connector_meta", "update_connector_output", "get_kv_connector_stats", "take_events",
               "has_pending_push_work", "has_pending_block_frees")  # fmt: skip

    def __init__(self, connector: Any) -> None:
        self._seconds = 0.0
        for name in self.METHODS:
            setattr(connector, name, self._timed(getattr(connector, name)))

    def take(self) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*given)
            finally:
                self._seconds += time.perf_counter() - began

        return call


class Bench:
    """A scheduler that decodes without a model."""

    def __init__(self, config: Any, kv: Any, running: int) -> None:
        from vllm import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.request import Request
        from vllm.v1.structured_output import StructuredOutputManager

        config.cache_config.num_gpu_blocks = kv.num_blocks
        self.scheduler = Scheduler(config, kv, StructuredOutputManager(config), BLOCK_TOKENS, log_stats=True)
        init_none_hash(sha256)
        hasher = get_request_block_hasher(BLOCK_TOKENS, sha256)
        random = Random(0)
        for number in range(running):
            self.scheduler.add_request(Request(
                request_id=f"r{number}",
                prompt_token_ids=[random.randrange(10, 30_000) for _ in range(PROMPT_TOKENS - number % BLOCK_TOKENS)],
                sampling_params=SamplingParams(temperature=0, max_tokens=2000, ignore_eos=True),
                pooling_params=None,
                block_hasher=hasher,
            ))  # fmt: skip

    def step(self, reports: Any = None) -> Step:
        """Run one step, in which each scheduled request gets a token."""
        from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

        began = time.perf_counter()
        output = self.scheduler.schedule()
        scheduled = time.perf_counter()
        self.orders = output.kv_connector_metadata
        ids = list(output.num_scheduled_tokens)
        done = ModelRunnerOutput(
            req_ids=ids, req_id_to_index={each: n for n, each in enumerate(ids)}, sampled_token_ids=[[7] for _ in ids],
            kv_connector_output=None if reports is None else KVConnectorOutput(kv_connector_worker_meta=reports),
        )  # fmt: skip
        ran = time.perf_counter()
        self.outputs = self.scheduler.update_from_output(output, done)
        return Step(scheduled - began, time.perf_counter() - ran)


def worker_step(worker: Any, orders: Any) -> Any:
    """Call the methods that a worker calls in one step, and return its reports."""
    worker.handle_preemptions(orders)
    worker.bind_connector_metadata(orders)
    worker.start_load_kv(None)
    for layer in range(LAYERS):
        worker.wait_for_layer_load(str(layer))
        worker.save_kv_layer(str(layer), None, None)
    worker.wait_for_save()
    worker.get_transfer_results(set())
    worker.get_block_ids_with_load_errors()
    worker.get_kv_connector_stats()
    worker.get_kv_connector_kv_cache_events()
    reports = worker.build_connector_worker_meta()
    worker.clear_connector_metadata()
    return reports


def row(model: Path, running: int) -> Row:
    import torch
    from prometheus_client import Counter, Gauge, Histogram
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

    from kvengine.connector import KVEngineConnector

    blocks = running * (PROMPT_TOKENS + WARM_UP + STEPS + 64) // BLOCK_TOKENS + 64
    kv = cache_config(blocks)
    config = config_of(model, offload=True)
    worker = KVEngineConnector(config, KVConnectorRole.WORKER, kv)
    shape = (blocks, KV_HEADS, BLOCK_TOKENS, 2 * HEAD_SIZE)
    worker.register_kv_caches({f"layer.{number}": torch.zeros(shape) for number in range(LAYERS)})
    exposition = KVEngineConnector.build_prom_metrics(
        config, {Gauge: Gauge, Counter: Counter, Histogram: Histogram}, ["model", "engine"], {0: ["m", "0"]}
    )
    plain = Bench(config_of(model, offload=False), kv, running)
    tested = Bench(config, kv, running)
    timers = Timers(tested.scheduler.connector)
    reports = worker.build_connector_worker_meta()
    while reports.ready_slots < reports.capacity_slots:
        time.sleep(0.01)
        reports = worker.build_connector_worker_meta()
    without: list[float] = []
    differences: list[float] = []
    timed: list[float] = []
    workers: list[float] = []
    observed: list[float] = []
    gc.collect()
    gc.freeze()
    for number in range(WARM_UP + STEPS):
        timers.take()
        pair = [plain.step(), tested.step(reports)] if number % 2 else [tested.step(reports), plain.step()][::-1]
        began = time.perf_counter()
        reports = worker_step(worker, tested.orders)
        ended = time.perf_counter()
        if number < WARM_UP - 10:
            time.sleep(0.02)  # for what is being stored
        (outputs,) = tested.outputs.values()
        statistics_of_step = outputs.scheduler_stats.kv_connector_stats if outputs.scheduler_stats else None
        observing = time.perf_counter()
        if statistics_of_step:
            exposition.observe(statistics_of_step)
        observing = time.perf_counter() - observing
        if number >= WARM_UP:
            without.append(sum(pair[0]))
            differences.append(sum(pair[1]) - sum(pair[0]))
            timed.append(timers.take())
            workers.append(ended - began)
            observed.append(observing)
        elif number == WARM_UP - 1 and tested.scheduler.connector.has_pending_push_work():
            raise RuntimeError("the prompts are still being stored; nothing would be measured but that")
    worker.shutdown()
    gc.unfreeze()
    return Row(running, *(statistics.median(each) * 1e6 for each in (without, timed, differences, workers, observed)))


def rows() -> list[Row]:
    """Return a row for each number of running requests."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from tests.vllm.model import make_model

    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder))
        return [row(model, running) for running in RUNNING]


def report() -> None:
    """Measure all rows and print the table."""
    measured = rows()
    load = "/".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"µs per step while nothing moves, medians of {STEPS} steps; {os.cpu_count()} cores, load {load}")
    print(
        "running   vLLM's scheduler   kvengine: scheduler   difference   worker   front end   all, of a step of 50 ms"
    )
    for each in measured:
        total = each.scheduler + each.worker + each.front_end
        print(f"{each.running:7}   {each.without:16.0f}   {each.scheduler:19.0f}   {each.difference:10.0f}"
              f"   {each.worker:6.0f}   {each.front_end:9.0f}   {total / 50_000:23.2%}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    if parser.parse_args().json:
        print(json.dumps([each._asdict() for each in rows()]))
    else:
        report()


if __name__ == "__main__":
    main()
