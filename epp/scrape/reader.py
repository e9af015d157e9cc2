"""What the picker needs out of an engine's metrics page, and nothing else.

A page of vLLM is a hundred kilobytes of histograms around five gauges. Those are found by their names; the rest is
never split into lines, let alone parsed.

Source: Prometheus' text format 0.0.4; vLLM's metric names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from epp.seat import EngineMetrics
from scorers.base import LoraState

WAITING, RUNNING = b"vllm:num_requests_waiting", b"vllm:num_requests_running"
KV_USAGE = (b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc")
"""Today's name, and the one before vLLM 0.10."""
CACHE_INFO, LORA_INFO = b"vllm:cache_config_info", b"vllm:lora_requests_info"
MAX_REQUESTS = 10**9
MAX_LINE_BYTES = 1 << 20
"""A thousand LoRA adapters are one line of 64 KiB or more."""

_LABEL = re.compile(rb'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*(,|(?=\}))')
_ESCAPE = re.compile(r"\\(.)")


class ScrapeError(Exception):
    """An endpoint's metrics could not be read; the message says what was met and, where it helps, what to do.

    ``reason`` is the word under which it is counted: connection, timeout, status, size, or page.
    """

    def __init__(self, message: str, *, reason: str = "page") -> None:
        super().__init__(message)
        self.reason = reason


class Sample(NamedTuple):
    """One line of a page."""

    labels: bytes
    """As written between the braces, and the closing brace; empty without any."""
    value: float


def read_engine(page: bytes) -> EngineMetrics:
    """What ``page`` says of its engine. Several engines behind one address (data parallel) are added up.

    Raises: ScrapeError when a needed line is malformed, or when the page is not vLLM's.
    """
    waiting, running = _requests(page, WAITING), _requests(page, RUNNING)
    if waiting is None and running is None:
        raise ScrapeError(
            f"the page has neither {WAITING.decode()} nor {RUNNING.decode()}; point the scraper at a vLLM server"
        )
    block_tokens, gpu_blocks = _cache(page)
    return EngineMetrics(
        waiting=waiting or 0,
        running=running or 0,
        kv_usage=_kv_usage(page),
        block_tokens=block_tokens,
        gpu_blocks=gpu_blocks,
        lora=_lora(page),
    )


def samples(page: bytes, name: bytes) -> list[Sample]:
    """Every sample of the metric ``name``, in order. Raises: ScrapeError for one that cannot be read."""
    found = []
    at = page.rfind(name)  # from the end, which CPython searches twice as fast as from the beginning
    while at >= 0:
        after = at + len(name)
        if page[after : after + 1] in _AFTER_A_NAME and _begins_a_line(page, at):
            end = page.find(b"\n", after)
            found.append(_sample(name, page[after : end if end >= 0 else len(page)]))
        at = page.rfind(name, 0, at)
    found.reverse()
    return found


_AFTER_A_NAME = (b"{", b" ", b"\t")


def labels_of(text: bytes) -> dict[str, str]:
    """The labels of a sample by name. Raises: ScrapeError."""
    at, found = 0, dict[str, str]()
    while at < len(text):
        if not text[at:].strip(b" \t}"):
            return found
        match = _LABEL.match(text, at)
        if match is None:
            raise ScrapeError(f"labels {_shown(text)} are malformed")
        value = match[2].decode("utf-8", "replace")
        found[match[1].decode()] = _ESCAPE.sub(_unescaped, value) if "\\" in value else value
        at = match.end()
    return found


def _begins_a_line(page: bytes, at: int) -> bool:
    while at > 0 and page[at - 1] in b" \t":
        at -= 1
    return at == 0 or page[at - 1] == 10


def _sample(name: bytes, line: bytes) -> Sample:
    if len(line) > MAX_LINE_BYTES:
        raise ScrapeError(f"a line of {name.decode()} has {len(line)} bytes, and {MAX_LINE_BYTES} are read")
    line = line.strip()
    labels, brace, rest = b"", b"", line
    if line.startswith(b"{"):
        labels, brace, rest = line[1:].rpartition(b"}")  # neither a value nor a timestamp has a brace
    fields = rest.split()
    try:
        if len(fields) not in (1, 2) or b"_" in fields[0] or (line.startswith(b"{") and not brace):
            raise ValueError  # noqa: TRY301 - the same message
        return Sample(labels + brace, float(fields[0]))
    except ValueError:
        raise ScrapeError(f"the line {_shown(name + line)} is malformed") from None


def _requests(page: bytes, name: bytes) -> int | None:
    values = [sample.value for sample in samples(page, name) if math.isfinite(sample.value)]
    return min(MAX_REQUESTS, max(0, round(math.fsum(values)))) if values else None


def _kv_usage(page: bytes) -> float:
    for name in KV_USAGE:
        values = [sample.value for sample in samples(page, name) if math.isfinite(sample.value)]
        if values:
            return min(1.0, max(0.0, math.fsum(values) / len(values)))
    return 0.0


def _cache(page: bytes) -> tuple[int | None, int | None]:
    """Tokens per block, and blocks of all engines; None for what is not said, or said to be None."""
    block_tokens: int | None = None
    gpu_blocks: int | None = None
    for sample in samples(page, CACHE_INFO):
        size, blocks = _cache_of(sample.labels)
        block_tokens = block_tokens or size
        if blocks:
            gpu_blocks = (gpu_blocks or 0) + blocks
    return block_tokens, gpu_blocks


@lru_cache(maxsize=128)
def _cache_of(labels: bytes) -> tuple[int | None, int | None]:
    """Remembered, since an engine says the same every time, and so do all that are set up alike."""
    found = labels_of(labels)
    return _count(found, "block_size"), _count(found, "num_gpu_blocks")


def _lora(page: bytes) -> LoraState:
    """Of the newest sample: its value is the time it was written at, and older ones stay on the page."""
    newest = max(samples(page, LORA_INFO), key=lambda sample: sample.value, default=None)
    if newest is None:
        return LoraState()
    labels = labels_of(newest.labels)
    return LoraState(
        running=_names(labels.get("running_lora_adapters", "")),
        waiting=_names(labels.get("waiting_lora_adapters", "")),
        max_loras=_count(labels, "max_lora") or 0,
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def _count(labels: Mapping[str, str], name: str) -> int | None:
    """A positive number of at most 15 digits."""
    text = labels.get(name, "")
    return (int(text) or None) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _shown(text: bytes) -> str:
    return repr(text[:120].decode("utf-8", "replace"))
