"""The memory tiers on a page: kvengine's gauges if there are any, else vLLM's own settings.

kvengine's gauges are read from every page. Settings do not change while an engine runs, and most pages have nothing
else. So the settings, and whether there are gauges at all, are looked up only on a first page, after a failure and on
every hundredth page. The other pages without kvengine cost nothing here.

Source: kvengine's ``connector/statistics.py``; vLLM 0.32's ``CacheConfig`` and ``simple_kv_offload/metrics.py``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from epp.catalog.models import find
from epp.scrape.reading.clock_difference import ClockDifference
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.loads import load_token_s
from epp.scrape.reading.samples import MAX_SERIES, labels_of, samples, short_enough, shown
from scorers.base import Tier, TierReport

LOOK_EVERY = 100
"""The number of pages between two such lookups. A guess: seconds for an endpoint with requests."""
MAX_TOKENS = 1 << 40
"""A larger number of tokens is ignored."""
AHEAD_S = 60.0
"""How far other times on a page may be ahead of the engine's own clock: several processes write one page. A guess."""
PREFIX = b"kvengine:"
TIERS = {tier.value: tier for tier in Tier}
NOTHING: Mapping[Tier, TierReport] = {}
_KV_BYTES = {"auto": None, "float16": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""The bytes of one value, by vLLM's name of the type; None: the model's own type."""


class TierReader:
    """Reads the tiers from the pages of one endpoint. Owner: the scraper."""

    def __init__(self) -> None:
        self.clock = ClockDifference()
        self._settings = NOTHING
        self._has_gauges = False
        self._load_token_s: float | None = None
        self._until_look = 0

    def look_again(self) -> None:
        """Look for gauges and settings on the next page, since it may be from another engine."""
        self._until_look = 0

    def read(self, page: bytes, received_at: float) -> Mapping[Tier, TierReport]:
        """Return the tiers on ``page``, with horizons on the clock of ``received_at``. Raises: ScrapeError."""
        if self._until_look <= 0:
            self._until_look = LOOK_EVERY
            self._has_gauges = PREFIX in page
            self._settings = NOTHING if self._has_gauges else settings_in(page)
            self._load_token_s = load_token_s(kvengine_part(page)) if self._has_gauges else None
        self._until_look -= 1
        if not self._has_gauges:
            return self._settings
        part = kvengine_part(page)
        if not part:  # another engine has taken the place of the former
            self.look_again()
            return NOTHING
        gauges = Gauges(part)
        clock_s, start_s = gauges.single(b"clock_timestamp_seconds"), gauges.single(b"start_timestamp_seconds")
        if clock_s:
            self.clock.read(clock_s, received_at)
        if start_s == 0:  # the engine has not reported anything yet
            return NOTHING
        return reports_in(gauges, start_s, clock_s or None, self.clock.seconds, self._load_token_s)


def kvengine_part(page: bytes) -> bytes:
    """Return the part of the page with kvengine's metrics; empty if there are none."""
    first = page.find(PREFIX)
    if first < 0:
        return b""
    begin, end = page.rfind(b"\n", 0, first) + 1, page.find(b"\n", page.rfind(PREFIX))
    return page[begin:] if end < 0 else page[begin:end]


class Gauges:
    """kvengine's gauges, parsed from its part of a page. Raises: ScrapeError."""

    def __init__(self, part: bytes) -> None:
        self._found: dict[bytes, dict[bytes, float]] = {}  # by name and labels; the last of repeated series
        for lines, (name, labels, value) in enumerate(_GAUGE.findall(part)):
            if lines == MAX_SERIES:
                raise ScrapeError(f"the page has more than {MAX_SERIES} series of kvengine's gauges")
            try:
                self._found.setdefault(name, {})[labels] = float(value)
            except ValueError:
                raise ScrapeError(f"the value {shown(value)} of kvengine:{name.decode()} is no number") from None

    def single(self, name: bytes) -> float | None:
        """Return the value that all engines behind an address agree on; None if it is missing or they differ."""
        values = {value for value in self._found.get(name, _NONE).values() if math.isfinite(value)}
        return values.pop() if len(values) == 1 else None

    def by_tier(self, name: bytes) -> dict[Tier, list[float]]:
        """Return the values of each tier, one per engine."""
        found: dict[Tier, list[float]] = {}
        for labels, value in self._found.get(b"tier_" + name, _NONE).items():
            tier = TIERS.get(_tier_label(labels))
            if tier is not None and math.isfinite(value) and value >= 0:
                found.setdefault(tier, []).append(value)
        return found


_NONE: Mapping[bytes, float] = {}
_GAUGE = re.compile(
    rb"^kvengine:(tier_(?:(?:capacity|resident|horizon_resident|block)_tokens|store_after|stores_decoded"
    rb"|eviction_horizon_timestamp_seconds)|(?:clock|start)_timestamp_seconds)\{([^\n]*)\}[ \t]+([^ \t\r\n]+)",
    re.MULTILINE,
)


def reports_in(
    gauges: Gauges, start_s: float | None, clock_s: float | None, ahead_s: float | None, load_token_s: float | None
) -> dict[Tier, TierReport]:
    """Return the reports by tier; ``clock_s`` is the engine's clock, and ``ahead_s`` how far it is ahead of ours.

    Both are None if unknown. Nothing was used before the engine's start, so its horizon is never earlier: what an
    earlier engine at the same address held is gone. If several engines share an address, it is unknown which of them
    holds what, so they have no horizon. Neither has an engine whose start or horizon is in the future by its own clock.
    """
    resident, horizons = gauges.by_tier(b"resident_tokens"), gauges.by_tier(b"eviction_horizon_timestamp_seconds")
    block, after = gauges.by_tier(b"block_tokens"), gauges.by_tier(b"store_after")
    decoded, left = gauges.by_tier(b"stores_decoded"), gauges.by_tier(b"horizon_resident_tokens")
    reports: dict[Tier, TierReport] = {}
    for tier, capacities in gauges.by_tier(b"capacity_tokens").items():
        horizon_s = None
        if len(horizons.get(tier, ())) == 1 and start_s is not None and clock_s is not None and ahead_s is not None:
            gone_s = max(horizons[tier][0], start_s)
            horizon_s = gone_s - ahead_s if gone_s <= clock_s + AHEAD_S else None
        stores_decoded = _least(decoded.get(tier))
        reports[tier] = TierReport(
            _tokens(capacities),
            _tokens(resident.get(tier)),
            horizon_s,
            _least(after.get(tier)),
            None if stores_decoded is None else bool(stores_decoded),
            _least(block.get(tier)) or None,
            load_token_s if tier is Tier.CPU else None,
            None if horizon_s is None else _tokens(left.get(tier)),
        )
    return reports


def settings_in(page: bytes) -> Mapping[Tier, TierReport]:
    """Return the tiers according to vLLM's settings. Raises: ScrapeError."""
    engines = [labels_of(sample.labels) for sample in short_enough(samples(page, b"vllm:cache_config_info"))]
    gpu = [_gpu(labels) for labels in engines]
    reports = {}
    if gpu and None not in gpu:
        caches = all(labels.get("enable_prefix_caching") != "False" for labels in engines)
        sizes = [_number(labels.get("block_size")) for labels in engines]
        reports[Tier.GPU] = TierReport(
            capacity_tokens=_tokens([tokens for tokens in gpu if tokens]) if caches else 0,
            store_after=int(caches),
            block_tokens=max(sizes) or None,
        )
    cpu = _offloaded_blocks(page, engines) or _offloaded_bytes(page, engines)
    if cpu is not None:
        reports[Tier.CPU] = TierReport(capacity_tokens=cpu)
    return reports or NOTHING


def _gpu(labels: Mapping[str, str]) -> int | None:
    """Return the tokens in GPU memory: vLLM's own figure, which covers hybrid models, or blocks times block size."""
    return _number(labels.get("kv_cache_size_tokens")) or (
        _number(labels.get("num_gpu_blocks")) * _number(labels.get("block_size")) or None
    )


def _offloaded_blocks(page: bytes, engines: Iterable[Mapping[str, str]]) -> int | None:
    """Return the tokens in CPU memory according to vLLM's SimpleCPUOffloadConnector: blocks, as large as the GPU's."""
    found = [labels_of(sample.labels) for sample in short_enough(samples(page, b"vllm:simple_kv_offload_info"))]
    blocks = [_number(labels.get("capacity_blocks")) for labels in found if labels.get("backend", "cpu") == "cpu"]
    size = next((size for labels in engines if (size := _number(labels.get("block_size")))), 0)
    return _tokens([count * size for count in blocks]) if blocks and size else None


def _offloaded_bytes(page: bytes, engines: Iterable[Mapping[str, str]]) -> int | None:
    """Return the tokens that fit in ``--kv-offloading-size``: GiB of all ranks together, over the bytes per token.

    None for a model whose shape is unknown, and for one that does not keep all layers of all tokens.
    """
    tokens = []
    for labels in engines:
        size_bytes = _real(labels.get("kv_offloading_size")) * 2**30
        if not size_bytes or labels.get("kv_offloading_backend", "native") != "native":
            continue
        token_bytes = _token_bytes(_model_name(page), labels.get("cache_dtype", "auto"))
        if token_bytes is None:
            return None
        tokens.append(size_bytes / token_bytes)
    return _tokens(tokens) if tokens else None


def _model_name(page: bytes) -> str:
    running = samples(page, b"vllm:num_requests_running")
    return labels_of(running[0].labels).get("model_name", "") if running else ""


@lru_cache(maxsize=128)
def _token_bytes(model_name: str, dtype: str) -> int | None:
    model = find(model_name) if model_name else None
    if model is None or dtype not in _KV_BYTES or model.window_layers or model.latent_dim:
        return None
    return model.kv_bytes_per_token(_KV_BYTES[dtype])


@lru_cache(maxsize=1024)
def _tier_label(labels: bytes) -> str:
    """Return the tier in the labels. Cached, since an engine repeats the same labels."""
    return labels_of(labels + b"}").get("tier", "")


def _tokens(values: Iterable[float] | None) -> int | None:
    """Return the sum; None if it is missing or implausible."""
    if values is None:
        return None
    total = sum(values)
    return int(total) if 0 <= total <= MAX_TOKENS else None


def _least(values: list[float] | None) -> int | None:
    return int(min(values)) if values and min(values) <= MAX_TOKENS else None


def _number(text: str | None) -> int:
    """Return a whole number of at most 12 digits; 0 for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 12 else 0


def _real(text: str | None) -> float:
    """Return a positive number of at most 2**20; 0 for anything else."""
    try:
        value = float(text or 0)
    except ValueError:
        return 0.0
    return value if 0 < value <= 1 << 20 else 0.0
