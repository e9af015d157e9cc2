"""What pickers and engines show on their own pages, read from the text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from epp.doctor.shown import number

MANY = 10
"""From this number of requests on, engines that answer while the picker decides nothing are no accident. A guess."""
_SAMPLE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
# A name begins at a word's start and gives nothing back, or a long word without a value would take quadratic time.
_LABEL = re.compile(r'\b(?P<name>\w++)="(?P<value>(?:[^"\\]|\\.)*)"')
_CLOCK, _REQUESTS, _STARTED = "clock", "requests", "started"


@dataclass(frozen=True, slots=True)
class PickerPage:
    """The page ``/readyz?verbose`` of one picker."""

    ready: bool
    sentence: str
    facts: Mapping[str, str]
    """The lines after the sentence; none from a picker of another kind or an older release."""
    read_at: float = 0.0
    """When the API server passed it on, by its clock, in Unix time; 0 if that is not known."""

    @property
    def requests(self) -> int | None:
        """Return how many requests it decided about since its start; None if it does not say."""
        return number(self.facts.get(_REQUESTS, ""))

    @property
    def started(self) -> float | None:
        """Return when it started, in Unix time by its own clock; None if it does not say."""
        return _number(self.facts.get(_STARTED, ""))

    @property
    def clock(self) -> float | None:
        """Return what its clock showed, in Unix time; None if it does not say."""
        return _number(self.facts.get(_CLOCK, ""))


@dataclass(frozen=True, slots=True)
class EnginePage:
    """The metrics page of one engine, as far as the rules read it."""

    models: tuple[str, ...] = ()
    block_size: str = ""
    """Tokens of a block; empty if the engine does not say."""
    prefix_caching: str = ""
    """``True`` or ``False`` as vLLM writes it; empty if it does not say."""
    capacities: Mapping[str, float] | None = None
    """Tokens by tier, where the engine reports them."""
    requests: float = 0.0
    """Requests that it has answered since its start."""
    more: float = 0.0
    """How many of them came between two readings of the page, a moment apart."""
    started: float | None = None
    """When it started, in Unix time; None if it does not say."""


def picker_page(status: int, body: bytes, read_at: float = 0.0) -> PickerPage:
    """Return what a page ``/readyz?verbose`` shows."""
    first, *rest = body.decode("utf-8", "replace").strip().split("\n")
    facts = (line.partition("=") for line in rest if "=" in line)
    return PickerPage(status == 200, first[:400], {name: value for name, _, value in facts}, read_at)


def engine_page(body: bytes) -> EnginePage:
    """Return what a metrics page of vLLM shows; what is not there is left out."""
    models: dict[str, None] = {}
    block = caching = ""
    capacities: dict[str, float] = {}
    requests, started = 0.0, None
    for name, labels, value in samples(body.decode("utf-8", "replace")):
        if name == "vllm:cache_config_info":
            block, caching = labels.get("block_size", ""), labels.get("enable_prefix_caching", "")
        elif name == "vllm:request_success_total":
            requests += value
        elif name == "kvengine:tier_capacity_tokens":
            capacities[labels.get("tier", "")] = capacities.get(labels.get("tier", ""), 0.0) + value
        elif name in ("process_start_time_seconds", "kvengine:start_timestamp_seconds"):
            started = value
        if name.startswith("vllm:") and labels.get("model_name"):
            models[labels["model_name"]] = None
    return EnginePage(tuple(sorted(models)), block, caching, capacities or None, requests, 0.0, started)


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield the name, labels and value of each sample of a page; other lines are skipped."""
    for line in text.split("\n"):
        if line.startswith("#") or (match := _SAMPLE.match(line)) is None:
            continue
        value = _number(match["value"])
        if value is not None:
            labels = {one["name"]: one["value"] for one in _LABEL.finditer(match["labels"] or "")}
            yield match["name"], labels, value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
