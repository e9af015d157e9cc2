"""The metrics of a simulated engine, under vLLM's and kvengine's names, computed on each scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from epp.lab.engine.engine import Engine
from epp.lab.engine.idle import NEVER
from epp.lab.engine.served import ServedModels
from epp.lab.engine.tally import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class EngineCollector(Collector):
    """Exports an engine's state under vLLM's names. Owner: the loop that drives the engine."""

    def __init__(self, engine: Engine, unix_s: Callable[[float], float], models: ServedModels) -> None:
        """``unix_s`` converts engine time to Unix time."""
        self._engine = engine
        self._adapters = models.adapters
        self._unix_s = unix_s
        self._began_s = time.time()
        self._names = ["model_name", "engine"]
        self._labels = [models.names[0], "0"]

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family once."""
        engine, tally = self._engine, self._engine.tally
        yield self._gauge("num_requests_running", "Requests in the batch.", engine.running)
        yield self._gauge("num_requests_waiting", "Requests queued, or waiting for blocks to load.", engine.waiting)
        yield self._gauge(
            "kv_cache_usage_perc", "Share of GPU KV blocks in use.", engine.gpu.used / engine.gpu.capacity
        )
        yield self._config()
        if self._adapters:
            yield self._lora()
        computed = tally.prompt_tokens - tally.gpu_hit_tokens
        yield self._counter("prefix_cache_queries", "Prompt tokens looked up in GPU memory.", tally.prompt_tokens)
        yield self._counter("prefix_cache_hits", "Prompt tokens found in GPU memory.", tally.gpu_hit_tokens)
        yield self._counter("external_prefix_cache_queries", "Prompt tokens looked up in the CPU tier.", computed)
        yield self._counter("external_prefix_cache_hits", "Prompt tokens found in the CPU tier.", tally.cpu_hit_tokens)
        yield self._counter("prompt_tokens", "Prompt tokens of requests that got a first token.", tally.prompt_tokens)
        yield self._counter("generation_tokens", "Tokens generated.", tally.generated_tokens)
        yield self._counter("num_preemptions", "Sequences that had to start again.", tally.preemptions)
        yield self._counter("request_success", "Requests completed.", tally.completed, finished_reason="length")
        yield self._histogram("time_to_first_token_seconds", "From receipt to the first token.", tally.ttft)
        yield self._histogram("request_queue_time_seconds", "From receipt to admission.", tally.queue)
        yield self._histogram("e2e_request_latency_seconds", "From receipt to the last token.", tally.e2e)
        yield from self._tiers()

    def _tiers(self) -> Iterator[Metric]:
        """Yield kvengine's metrics for both tiers."""
        gpu, cpu, preset = self._engine.gpu, self._engine.cpu, self._engine.preset
        block = preset.block_tokens
        values = {
            "capacity_tokens": (gpu.capacity * block, cpu.capacity * block),
            "resident_tokens": (gpu.cached * block, cpu.stored * block),
            "block_tokens": (block, block),
            "store_after": (1, int(cpu.capacity > 0)),
            "stores_decoded": (1, 0),
            "horizon_resident_tokens": (gpu.at_horizon * block, cpu.at_horizon * block),
            "eviction_horizon_timestamp_seconds": (self._horizon(gpu.horizon_s), self._horizon(cpu.horizon_s)),
        }
        for name, by_tier in values.items():
            family = GaugeMetricFamily(f"kvengine:tier_{name}", "See kvengine.", labels=[*self._names, "tier"])
            for tier, value in zip(("gpu", "cpu"), by_tier, strict=True):
                family.add_metric([*self._labels, tier], value)
            yield family
        for name, moment_s in (("clock", time.time()), ("start", self._began_s)):
            family = GaugeMetricFamily(f"kvengine:{name}_timestamp_seconds", "See kvengine.", labels=self._names)
            family.add_metric(self._labels, moment_s)
            yield family

    def _horizon(self, engine_s: float) -> float:
        return 0.0 if engine_s == NEVER else self._unix_s(engine_s)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=self._names)
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, text: str, value: float, **labels: str) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=[*self._names, *labels])
        family.add_metric([*self._labels, *labels.values()], value)
        return family

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(f"vllm:{name}", text, labels=self._names)
        family.add_metric(self._labels, histogram.cumulative(), histogram.sum)
        return family

    def _config(self) -> Metric:
        """Return the cache configuration. ``num_cpu_blocks`` is None, as in vLLM, whatever is offloaded."""
        preset = self._engine.preset
        info = {
            "block_size": str(preset.block_tokens),
            "num_gpu_blocks": str(preset.gpu_blocks),
            "num_cpu_blocks": "None",
            "enable_prefix_caching": "True",
            "engine": "0",
        }
        family = GaugeMetricFamily("vllm:cache_config_info", "Configuration of the KV cache.", labels=list(info))
        family.add_metric(list(info.values()), 1)
        return family

    def _lora(self) -> Metric:
        """Return the LoRA info. A simulated batch has room for every adapter, so ``max_lora`` is their number."""
        running, waiting = (",".join(sorted(names)) for names in self._engine.adapters())
        info = {
            "max_lora": str(len(self._adapters)),
            "running_lora_adapters": running,
            "waiting_lora_adapters": waiting,
        }
        family = GaugeMetricFamily("vllm:lora_requests_info", "LoRA adapters that requests use.", labels=list(info))
        family.add_metric(list(info.values()), time.time())
        return family


class Exposition:
    """Renders the text of ``/metrics``."""

    def __init__(self, engine: Engine, unix_s: Callable[[float], float], models: ServedModels) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(EngineCollector(engine, unix_s, models))

    def text(self) -> bytes:
        """Return all metrics in Prometheus text format."""
        return generate_latest(self._registry)
