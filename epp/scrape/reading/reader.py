"""Reads from an engine's metrics page what the picker needs, and nothing else.

A page of vLLM is a hundred kilobytes of histograms around five gauges. Several series of one metric are several engines
behind one address (data parallel, or several models): counts are summed, and shares averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from epp.pool.seat import EngineMetrics
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.samples import Sample, labels_of, samples, short_enough
from epp.scrape.reading.specs import ENGINE_LABELS, EngineSpec, MetricSpec
from scorers.base import LoraState

MAX_REQUESTS = 10**6
"""A larger number is ignored: no engine queues as many requests, and the number would outweigh everything else."""
MAX_ADAPTERS = 10**9
MAX_BLOCK_TOKENS, MAX_BLOCKS = 1 << 20, 10**9
"""Larger numbers are ignored: they would make the prefix index reserve that much room."""
_REMEMBERED_LABELS_BYTES = 4096
MAX_MODELS = 64
"""Maximum number of series whose labels are searched for model names: engines with many adapters have one series for
each.
"""


class EngineReader:
    """Reads the pages of one kind of engine."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self._waiting, self._running = _metric(spec.waiting), _metric(spec.running)
        self._kv_usage = tuple(_Metric(kv_usage) for kv_usage in spec.kv_usage)
        self._lora, self._cache_info = _metric(spec.lora), _metric(spec.cache_info)
        self._block_tokens, self._gpu_blocks = _metric(spec.block_tokens), _metric(spec.gpu_blocks)
        self._attributes = tuple((key, _Metric(metric)) for key, metric in spec.attributes)
        self._model_label = spec.model_label

    def read(self, page: bytes) -> EngineMetrics:
        """Return the metrics on ``page``: finite numbers, in range.

        Raises: ScrapeError if a required line is malformed, or if the page is not from this kind of engine.
        """
        doubted: list[str] = []
        queue = self._waiting.samples(page) if self._waiting else []
        batch = self._running.samples(page) if self._running else []
        waiting, running = _requests(queue, self._waiting, doubted), _requests(batch, self._running, doubted)
        if waiting is None and running is None and (self._waiting or self._running):
            if doubted:
                raise ScrapeError(f"the page says {' and '.join(doubted)}; at most {MAX_REQUESTS:,} are believed")
            names = " nor ".join(metric.spec.name for metric in (self._waiting, self._running) if metric)
            raise ScrapeError(
                f"the page has neither {names}, so it is not from {self.spec.name}; label the endpoint "
                f"{ENGINE_LABELS[0]} if it is another engine"
            )
        block_tokens, gpu_blocks = self._cache(page)
        return EngineMetrics(
            waiting=waiting or 0,
            running=running or 0,
            kv_usage=self._usage(page),
            block_tokens=block_tokens,
            gpu_blocks=gpu_blocks,
            lora=_lora(page, self._lora) if self._lora else _NO_LORA,
            attributes=_sums(page, self._attributes) if self._attributes else _NO_ATTRIBUTES,
            started_s=_started(page),
            models=self._models(batch or queue),
            partial=waiting is None or running is None,
            doubted=tuple(doubted),
        )

    def missing(self, page: bytes) -> list[str]:
        """Return the metrics that every decision needs and that are not on ``page``, as they are written."""
        needed = [metric for metric in (self._waiting, self._running) if metric and not metric.samples(page)]
        if self._kv_usage and not any(metric.samples(page) for metric in self._kv_usage):
            needed.append(self._kv_usage[0])
        return [str(metric.spec) for metric in needed]

    def _models(self, found: list[Sample]) -> frozenset[str]:
        """Return the models whose requests are counted; of an engine's several names for one model, its first."""
        if self._model_label is None or len(found) > MAX_MODELS:
            return _NO_MODELS
        return _models_in(tuple([labels for labels, _ in found]), self._model_label)

    def _usage(self, page: bytes) -> float:
        for metric in self._kv_usage:
            if values := metric.values(page):
                return sum([min(1.0, max(0.0, value)) for value in values]) / len(values)
        return 0.0

    def _cache(self, page: bytes) -> tuple[int | None, int | None]:
        """Return the tokens per block, and the blocks of all engines; None for what is missing or has no value."""
        block_tokens: int | None = None
        gpu_blocks: int | None = None
        if self._block_tokens is not None:
            sizes = [_whole(value, MAX_BLOCK_TOKENS) for value in self._block_tokens.values(page)]
            block_tokens = next((size for size in sizes if size), None)
        if self._gpu_blocks is not None:
            gpu_blocks = _limited(_whole(value, MAX_BLOCKS) for value in self._gpu_blocks.values(page))
        if self._cache_info is None or (block_tokens and gpu_blocks):
            return block_tokens, gpu_blocks
        size_label, blocks_label = self.spec.block_tokens_label, self.spec.gpu_blocks_label
        found = short_enough(self._cache_info.samples(page))
        said = [_cache_of(sample.labels, size_label, blocks_label) for sample in found]
        if len(said) == 1:
            return block_tokens or said[0][0], gpu_blocks or said[0][1]
        return (
            block_tokens or next((size for size, _ in said if size), None),
            gpu_blocks or _limited(blocks for _, blocks in said),
        )


class _Metric:
    """One metric spec, prepared for searching pages."""

    def __init__(self, spec: MetricSpec) -> None:
        self.spec = spec
        self._name = spec.name.encode()
        self._labels = dict(spec.labels).items()

    def samples(self, page: bytes) -> list[Sample]:
        """Return the matching samples on ``page``. Raises: ScrapeError."""
        found = samples(page, self._name)
        if not self._labels:
            return found
        return [s for s in short_enough(found) if self._labels <= _labels(s.labels).items()]

    def newest(self, page: bytes) -> Sample | None:
        """Return the sample with the largest value, which is the newest; None without one.

        For series whose value is the time of their last update, while older ones stay on the page. Raises: ScrapeError.
        """
        found = samples(page, self._name, last=True)
        if self._labels:
            found = [s for s in short_enough(found) if self._labels <= _labels(s.labels).items()]
        dated = [sample for sample in found if math.isfinite(sample.value)]
        return max(dated, key=lambda sample: sample.value, default=None)

    def values(self, page: bytes) -> list[float]:
        """Return the finite values; of a repeated series the last one. Raises: ScrapeError."""
        return _finite(self.samples(page))


_PROCESS_START, _KVENGINE_START = b"process_start_time_seconds", b"kvengine:start_timestamp_seconds"
_KVENGINE_CLOCK = b"kvengine:clock_timestamp_seconds"
AHEAD_S = 60.0
"""As in ``epp.scrape.reading.tiers``: a start time in the future is invalid."""
_FIRST_BYTES = 1 << 14
"""Client libraries write the metrics of their process first, and a page may be long."""


def _started(page: bytes) -> float | None:
    """Return when the engine started, by its own clock. Pages of several processes lack the usual metric."""
    if said := _times(page[:_FIRST_BYTES], _PROCESS_START):
        return max(said)
    said = _times(page, _KVENGINE_START)
    if not said or max(said) > max(_times(page, _KVENGINE_CLOCK), default=math.inf) + AHEAD_S:
        return None
    return max(said)


def _times(page: bytes, name: bytes) -> list[float]:
    """Return the positive finite values of a metric; none if they cannot be read."""
    try:
        return [value for _, value in samples(page, name) if math.isfinite(value) and value > 0]
    except ScrapeError:
        return []


_NO_LORA = LoraState()
_NO_MODELS: frozenset[str] = frozenset()
_NO_ATTRIBUTES: Mapping[str, float] = {}


def _finite(found: list[Sample]) -> list[float]:
    """Return the finite values of ``found``; of a repeated series the last one."""
    if len(found) == 1:
        value = found[0].value
        return [value] if math.isfinite(value) else []
    return list({labels: value for labels, value in found if math.isfinite(value)}.values())


def _metric(spec: MetricSpec | None) -> _Metric | None:
    return None if spec is None else _Metric(spec)


def _requests(found: list[Sample], metric: _Metric | None, doubted: list[str]) -> int | None:
    """Return the sum of the samples of ``metric``; None without samples, or for an impossible value.

    Impossible values are added to ``doubted``.
    """
    if metric is None:
        return None
    values = _finite(found)
    total = sum([max(0.0, value) for value in values])
    if values and total <= MAX_REQUESTS:
        return round(total)
    if said := values or [sample.value for sample in found]:
        doubted.append(f"{metric.spec.name} {max(said):g}")
    return None


def _sums(page: bytes, metrics: Iterable[tuple[str, _Metric]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, metric in metrics:
        values = metric.values(page)
        if values and math.isfinite(total := sum(values)):
            found[key] = total
    return found


def _lora(page: bytes, metric: _Metric) -> LoraState:
    newest = metric.newest(page)
    if newest is None:
        return _NO_LORA
    labels = labels_of(newest.labels)
    return LoraState(
        running=_names(labels.get("running_lora_adapters", "")),
        waiting=_names(labels.get("waiting_lora_adapters", "")),
        max_loras=_count(labels, "max_lora", MAX_ADAPTERS) or 0,
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def _labels(text: bytes) -> Mapping[str, str]:
    return _short_labels(text) if len(text) <= _REMEMBERED_LABELS_BYTES else labels_of(text)


@lru_cache(maxsize=1024)
def _short_labels(text: bytes) -> Mapping[str, str]:
    """Return the labels of a sample. Cached: an engine repeats them, and engines with the same setup share them."""
    return labels_of(text)


@lru_cache(maxsize=128)
def _cache_of(text: bytes, size: str, blocks: str) -> tuple[int | None, int | None]:
    """Return the block size and the number of blocks from the labels. Cached, too."""
    labels = labels_of(text)
    return _count(labels, size, MAX_BLOCK_TOKENS), _count(labels, blocks, MAX_BLOCKS)


@lru_cache(maxsize=256)
def _models_in(series: tuple[bytes, ...], label: str) -> frozenset[str]:
    """Return the model names in the labels of several series. Cached, too."""
    return frozenset([name for labels in series if (name := _labels(labels).get(label))])


def _count(found: Mapping[str, str], name: str, most: int) -> int | None:
    """Return the label ``name`` as a positive number of at most 15 digits and at most ``most``, else None."""
    text = found.get(name, "")
    return _whole(int(text), most) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def _whole(value: float, most: int) -> int | None:
    return int(value) if 1 <= value <= most else None


def _limited(counts: Iterable[int | None]) -> int | None:
    total = sum(count for count in counts if count)
    return total if 1 <= total <= MAX_BLOCKS else None
