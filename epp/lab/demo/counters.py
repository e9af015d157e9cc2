"""The endpoints' own counters, the authority on cache hits, under vLLM's metric names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

METRICS = {
    "vllm:request_success_total": "requests",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:prefix_cache_queries_total": "prompt_tokens",
    "vllm:prefix_cache_hits_total": "gpu_tokens",
    "vllm:external_prefix_cache_hits_total": "cpu_tokens",
    "vllm:time_to_first_token_seconds_sum": "ttft_sum_s",
    "vllm:time_to_first_token_seconds_count": "ttft_count",
}


@dataclass(frozen=True, slots=True)
class Counters:
    """One endpoint's numbers, or the sums of several endpoints."""

    requests: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    prompt_tokens: float = 0.0
    gpu_tokens: float = 0.0
    cpu_tokens: float = 0.0
    ttft_sum_s: float = 0.0
    ttft_count: float = 0.0

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def since(self, before: Counters) -> Counters:
        """Return what was counted after ``before``; gauges keep their values."""
        return Counters(
            requests=self.requests - before.requests,
            running=self.running,
            waiting=self.waiting,
            prompt_tokens=self.prompt_tokens - before.prompt_tokens,
            gpu_tokens=self.gpu_tokens - before.gpu_tokens,
            cpu_tokens=self.cpu_tokens - before.cpu_tokens,
            ttft_sum_s=self.ttft_sum_s - before.ttft_sum_s,
            ttft_count=self.ttft_count - before.ttft_count,
        )

    @property
    def gpu_share(self) -> float:
        """Share of prompt tokens found in GPU memory."""
        return self.gpu_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def cpu_share(self) -> float:
        """Share of prompt tokens found in the CPU tier."""
        return self.cpu_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def miss_share(self) -> float:
        """Share of prompt tokens that had to be computed."""
        return 1.0 - self.gpu_share - self.cpu_share if self.prompt_tokens else 0.0

    @property
    def mean_ttft_s(self) -> float | None:
        """Mean time to first token as the endpoint measures it; None before the first."""
        return self.ttft_sum_s / self.ttft_count if self.ttft_count else None


def read(text: str) -> Counters:
    """Return the counters in a Prometheus exposition; a missing one counts as 0."""
    found = dict.fromkeys(METRICS.values(), 0.0)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if name := METRICS.get(sample.name):
                found[name] += sample.value
    return Counters(**found)


class Watch:
    """Reads the counters of ``endpoints`` and remembers their first values."""

    def __init__(self, session: aiohttp.ClientSession, endpoints: Sequence[str]) -> None:
        self._session, self._endpoints = session, endpoints
        self._before: dict[str, Counters] = {}
        self.now: dict[str, Counters] = dict.fromkeys(endpoints, Counters())
        """Counts since the first reading, by endpoint."""

    async def read(self) -> None:
        """Update ``now``; an endpoint that does not answer keeps its numbers."""
        for endpoint, counters in zip(
            self._endpoints, await asyncio.gather(*map(self._one, self._endpoints)), strict=True
        ):
            if counters is not None:
                self.now[endpoint] = counters.since(self._before.setdefault(endpoint, counters))

    async def _one(self, endpoint: str) -> Counters | None:
        try:
            async with self._session.get(f"http://{endpoint}/metrics") as response:
                return read(await response.text()) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError):
            return None

    @property
    def total(self) -> Counters:
        """The sum over all endpoints."""
        return sum(self.now.values(), Counters())
