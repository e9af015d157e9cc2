"""One endpoint as a decision sees it: its load, its memory tiers, what its engine says of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NewType

import msgspec

Slot = NewType("Slot", int)
"""An endpoint's number in every per-endpoint table (bit masks, lists). Reused only after the endpoint was removed."""


class Tier(Enum):
    """A kind of memory that holds KV blocks, fastest first."""

    GPU = "gpu"
    CPU = "cpu"
    STORAGE = "storage"

    __hash__ = object.__hash__  # members are equal only to themselves; Enum's own is Python code, three times as slow


class Mode(Enum):
    """How it is known what an endpoint holds, the best first."""

    PRECISE = "precise"
    """The engine tells each block that it keeps or drops."""
    HORIZON = "horizon"
    """The engine tells how far eviction has come, and we remember what we sent when."""
    APPROXIMATE = "approximate"
    """We keep our own LRU of what we sent, as large as the tier."""

    __hash__ = object.__hash__


class Silence(Enum):
    """Why an endpoint's numbers are not fresh."""

    LATE = "late"
    """It was read before, or answers without a page that can be read: its engine may be at work, and the numbers are
    old or absent."""
    UNREAD = "unread"
    """Its page was never read: it is new, or still loading. The numbers are those of an idle engine, and mean
    nothing."""
    GONE = "gone"
    """Nobody accepts connections there. It stays so until somebody answers; a time-out is no answer."""

    __hash__ = object.__hash__


class TierReport(msgspec.Struct, frozen=True):
    """What an engine says of one of its tiers; None for what it does not say. Units: its own tokens."""

    capacity_tokens: int | None = None
    """What the tier can hold; 0 where nothing is looked up in it."""
    resident_tokens: int | None = None
    """What it holds and can be found."""
    horizon_s: float | None = None
    """The latest last use of anything that was evicted, on the clock that picks are timed by, not on the engine's.
    Minus infinity before the first eviction: everything that entered is there."""
    store_after: int | None = None
    """A prompt's tokens enter when computed for the so-manieth time; 0: nothing enters."""
    stores_decoded: bool | None = None
    """Whether generated tokens enter, too."""
    block_tokens: int | None = None
    """Kept or dropped together: a hit is a whole number of these."""
    load_token_s: float | None = None
    """What its loads to the GPU took for each token, on average: where those who learn it may begin."""
    horizon_tokens: int | None = None
    """Of what was last used at the horizon, what is still there: its beginning. Decoded tokens go first."""


class LoraState(msgspec.Struct, frozen=True):
    """Which LoRA adapters an engine has loaded or has requests waiting for."""

    running: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    max_loras: int = 0


class Candidate(msgspec.Struct, frozen=True):
    """One endpoint in one decision. Replaced as a whole when anything about it changes."""

    slot: Slot
    address: str
    """Where requests go: ``10.0.0.7:8000``; IPv6 in brackets."""
    name: str = ""
    """``namespace/name``."""
    labels: Mapping[str, str] = {}
    waiting: int = 0
    """Requests queued in the engine: as scraped, plus those of ours that no scrape can have seen and will queue."""
    running: int = 0
    """Requests in the engine's batch: as scraped, plus those of ours that no scrape can have seen and that will run."""
    kv_usage: float = 0.0
    """Share of the engine's GPU KV blocks in use, 0 to 1: as scraped, plus what our unseen picks must compute there."""
    in_flight: int = 0
    """Requests that this picker sent there and that have not ended (exact, counted at the pick)."""
    in_flight_tokens: int = 0
    """Prompt tokens of those that the endpoint held in no tier, and whose answer nobody has seen begin."""
    fresh: bool = True
    """False when no scrape succeeded within the staleness threshold; the numbers are then the last known."""
    block_tokens: int | None = None
    """Tokens per KV block, as the engine reports it."""
    gpu_blocks: int | None = None
    """KV blocks in GPU memory, as the engine reports it."""
    lora: LoraState = LoraState()
    attributes: Mapping[str, float] = {}
    """Numbers of the endpoint by name, as the configuration's ``customMetrics`` read them."""
    tiers: Mapping[Tier, TierReport] = {}
    """What the engine says of its tiers; those that it does not speak of are absent."""
    silence: Silence = Silence.LATE
    """Why it is not ``fresh``; without meaning while it is."""
