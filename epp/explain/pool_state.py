"""What the debug port answers about the endpoints, as data.

``tierwise explain`` reads it, and so nothing of the picker is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from epp.explain.explanation import AnsweredBy
from epp.scrape.state import ScrapeState

EngineT = TypeVar("EngineT")

KNOWN = "known"
APPROXIMATE = "approximate"
"""The mode of what is a guess from our own picks."""


class Doubted(msgspec.Struct, frozen=True):
    """Of an engine's numbers, those that were not believed: what a table shows of them."""

    doubted: tuple[str, ...] = ()


class Load(msgspec.Struct, frozen=True):
    """What a decision sees: as scraped, plus our picks that no scrape can have counted yet."""

    waiting: int
    running: int
    kv_usage: float


class Held(msgspec.Struct, frozen=True):
    """One tier of one endpoint in the prefix index. Units: tokens."""

    capacity_tokens: int
    used_tokens: int
    """Of a tier that is known precisely, what the engine's KV events say; of others, what the index remembers."""
    mode: str = APPROXIMATE
    """How that is known: precise, horizon or approximate."""


class FromEvents(msgspec.Struct, frozen=True):
    """What an engine's KV events say."""

    state: str
    """``known``, or why it is not."""
    tokens: Mapping[str, int]
    """Held by tier."""
    gaps: int
    publisher_restarts: int
    publishers: tuple[str, ...] = ()
    """Where they are published, or where publishers connect to us; none where no port is known."""


class EndpointState(msgspec.Struct, Generic[EngineT], frozen=True):
    """One endpoint. ``in_flight`` and its tokens are exact."""

    address: str
    name: str
    labels: Mapping[str, str]
    fresh: bool
    in_flight: int
    in_flight_tokens: int
    decision: Load
    engine: EngineT
    """As it said last."""
    index: Mapping[str, Held]
    """By producer, with its tier: ``cpu-prefix-cache-producer (cpu)``."""
    scrape: ScrapeState | None
    """None where nothing reads the engines' metrics."""
    kv_events: FromEvents | None = None
    """None where nobody follows the engines' events."""


class PoolState(msgspec.Struct, Generic[EngineT], frozen=True):
    """The whole pool."""

    pool: str
    in_flight: int
    """Requests, those of removed endpoints included."""
    endpoints: tuple[EndpointState[EngineT], ...]
    answered_by: AnsweredBy | None = None
