"""What a running endpoint reports about itself on its metrics page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from epp.errors import ConfigError
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.samples import labels_of, samples

ANSWERS_WITHIN_S = 10.0
MAX_PAGE_BYTES = 16 << 20
MOST = 1 << 60
"""Larger numbers of tokens or bytes are taken for errors and ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFacts:
    """The values that an endpoint reports; None for each that it does not."""

    model: str | None = None
    block_tokens: int | None = None
    gpu_blocks: int | None = None
    utilization: float | None = None
    kv_dtype: str | None = None
    gpu_tokens: int | None = None
    cpu_tokens: int | None = None
    cpu_bytes: int | None = None
    token_bytes: float | None = None
    """KV of one token, over all ranks."""
    prefix_caching: bool = True


def read_endpoint(url: str) -> ReportedFacts:
    """Return what the page at ``url`` reports. Raises: ConfigError with one sentence."""
    page = fetch(url)
    try:
        return read_page(page)
    except ScrapeError as error:
        raise ConfigError(f"--metrics-url={url}: {error}; it must be the /metrics of a vLLM server") from error


def fetch(url: str) -> bytes:
    """Fetch the page at ``url``. Raises: ConfigError with one sentence."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"--metrics-url={url}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--metrics-url={url}: must be http://ADDRESS:PORT/metrics")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, port, timeout=ANSWERS_WITHIN_S)
    try:
        connection.request("GET", parts.path if parts.path not in ("", "/") else "/metrics")
        response = connection.getresponse()
        page = response.read(MAX_PAGE_BYTES + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise ConfigError(f"--metrics-url={url}: no endpoint answers there ({error}); is it up?") from error
    finally:
        connection.close()
    if response.status != 200:
        raise ConfigError(f"--metrics-url={url}: answers {response.status}; the page is usually at /metrics")
    if len(page) > MAX_PAGE_BYTES:
        raise ConfigError(f"--metrics-url={url}: the page has more than {MAX_PAGE_BYTES:,} bytes")
    return page


def read_page(page: bytes) -> ReportedFacts:
    """Return what a metrics page of vLLM reports, with kvengine or without. Raises: ScrapeError."""
    info = [labels_of(sample.labels) for sample in samples(page, b"vllm:cache_config_info")]
    if not info:
        raise ScrapeError("the page has no vllm:cache_config_info")
    cache = info[-1]
    served = [labels_of(sample.labels).get("model_name") for sample in samples(page, b"vllm:num_requests_running")]
    tokens, sizes = (_by_tier(page, f"kvengine:tier_capacity_{unit}".encode()) for unit in ("tokens", "bytes"))
    token_bytes = next(
        (sizes[tier] / tokens[tier] for tier in ("cpu", "gpu") if tokens.get(tier) and sizes.get(tier)), None
    )
    return ReportedFacts(
        model=next((name for name in served if name), None),
        block_tokens=_whole(cache.get("block_size")),
        gpu_blocks=_whole(cache.get("num_gpu_blocks")),
        utilization=_share(cache.get("gpu_memory_utilization")),
        kv_dtype=cache.get("cache_dtype"),
        gpu_tokens=_whole(cache.get("kv_cache_size_tokens")),
        cpu_tokens=tokens.get("cpu"),
        cpu_bytes=sizes.get("cpu"),
        token_bytes=token_bytes,
        prefix_caching=cache.get("enable_prefix_caching", "True") != "False",
    )


def _by_tier(page: bytes, name: bytes) -> dict[str, int]:
    found: dict[str, int] = {}
    for labels, value in samples(page, name):
        if math.isfinite(value) and 0 <= value <= MOST:
            found[labels_of(labels).get("tier", "")] = round(value)
    return found


def _whole(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 15:
        return None
    return int(text) or None


def _share(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value <= 1 else None
