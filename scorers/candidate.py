"""One endpoint as a decision sees it: its load, its memory tiers, and what its engine reports of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NewType

import msgspec

Slot = NewType("Slot", int)
"""An endpoint's number in every per-endpoint table (bit masks, lists). It is reused only after the endpoint was
removed."""


class Tier(Enum):
    """A kind of memory that holds KV blocks, fastest first."""

    GPU = "gpu"
    CPU = "cpu"
    STORAGE = "storage"

    __hash__ = object.__hash__  # members equal only themselves; Enum's own hash takes three times as long


class Mode(Enum):
    """How we know what an endpoint holds, the best mode first."""

    PRECISE = "precise"
    """The engine reports each block that it keeps or drops."""
    HORIZON = "horizon"
    """The engine reports how far eviction has come, and we remember what we sent and when."""
    APPROXIMATE = "approximate"
    """We keep our own LRU of what we sent, as large as the tier."""

    __hash__ = object.__hash__


class Silence(Enum):
    """Why an endpoint's numbers are not fresh."""

    LATE = "late"
    """The metrics page was read before, or the endpoint answers without a readable page. Its engine may be at work; the
    numbers are old or absent."""
    UNREAD = "unread"
    """The metrics page was never read: the endpoint is new, or still loading. The numbers are those of an idle engine,
    and mean nothing."""
    GONE = "gone"
    """The endpoint accepts no connections. This lasts until it answers; a time-out is not an answer."""

    __hash__ = object.__hash__


class TierReport(msgspec.Struct, frozen=True):
    """What an engine reports about one of its tiers. Units: the engine's own tokens.

    A field that the engine does not report is None.
    """

    capacity_tokens: int | None = None
    """How many tokens the tier can hold; 0 if nothing is looked up in it."""
    resident_tokens: int | None = None
    """How many tokens the tier holds that can be found."""
    horizon_s: float | None = None
    """The eviction horizon: the latest last use of anything evicted, on the clock that times picks, not on the
    engine's. Minus infinity before the first eviction: everything that entered is still there."""
    store_after: int | None = None
    """How often a prompt must be computed before its tokens are stored; 0 stores nothing."""
    stores_decoded: bool | None = None
    """Whether generated tokens are stored, too."""
    block_tokens: int | None = None
    """Tokens that are kept or dropped together: a cache hit is a whole number of these."""
    load_token_s: float | None = None
    """Average time to load one token from this tier to the GPU: the starting value for learning it. Units:
    seconds."""
    horizon_tokens: int | None = None
    """Of what was last used exactly at the horizon, how many tokens are still there. They are its beginning, since
    decoded tokens are dropped first."""


class LoraState(msgspec.Struct, frozen=True):
    """Which LoRA adapters an engine has loaded, and for which ones it has requests waiting."""

    running: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    max_loras: int = 0


class Candidate(msgspec.Struct, frozen=True):
    """One endpoint in one decision. It is replaced as a whole when anything about it changes."""

    slot: Slot
    address: str
    """Where requests go: ``10.0.0.7:8000``; IPv6 in brackets."""
    name: str = ""
    """The discovered name, ``namespace/name``."""
    labels: Mapping[str, str] = {}
    """The endpoint's labels as discovery reports them."""
    waiting: int = 0
    """Requests queued in the engine: the scraped number, plus our picks that no scrape can have seen and that will
    queue."""
    running: int = 0
    """Requests in the engine's batch: the scraped number, plus our picks that no scrape can have seen and that will
    run."""
    kv_usage: float = 0.0
    """Share of the engine's GPU KV blocks in use, 0 to 1: the scraped number, plus what our unseen picks must compute
    there."""
    in_flight: int = 0
    """Requests that this picker sent there and that have not ended (exact, counted at the pick)."""
    in_flight_tokens: int = 0
    """Of the requests in flight whose response has not begun, the prompt tokens that the endpoint held in no tier."""
    fresh: bool = True
    """False if no scrape succeeded within the staleness threshold; the numbers are then the last known ones."""
    block_tokens: int | None = None
    """Tokens per KV block, as the engine reports it."""
    gpu_blocks: int | None = None
    """KV blocks in GPU memory, as the engine reports it."""
    lora: LoraState = LoraState()
    attributes: Mapping[str, float] = {}
    """Other numbers of the endpoint by name, as the configuration's ``customMetrics`` read them."""
    tiers: Mapping[Tier, TierReport] = {}
    """What the engine reports about its tiers; a tier without a report is absent."""
    silence: Silence = Silence.LATE
    """Why the endpoint is not ``fresh``; meaningless while it is."""
