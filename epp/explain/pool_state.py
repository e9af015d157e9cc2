"""The debug port's answer about the endpoints, as data.

``tierwise explain`` reads it, and so this module imports nothing of the picker.
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
"""The mode of what is estimated from our own picks."""


class Doubted(msgspec.Struct, frozen=True):
    """Those of an engine's numbers that were rejected as implausible, for a table."""

    doubted: tuple[str, ...] = ()


class Load(msgspec.Struct, frozen=True):
    """The load that a decision uses: as scraped, plus our picks that no scrape can have counted yet."""

    waiting: int
    running: int
    kv_usage: float


class Held(msgspec.Struct, frozen=True):
    """One tier of one endpoint in the prefix index. Units: tokens."""

    capacity_tokens: int
    used_tokens: int
    """From the engine's KV events for a tier that is known precisely; otherwise what the index remembers."""
    mode: str = APPROXIMATE
    """How the used tokens are known: precise, horizon or approximate."""


class FromEvents(msgspec.Struct, frozen=True):
    """What an engine's KV events report."""

    state: str
    """``known``, or why the contents are not known."""
    tokens: Mapping[str, int]
    """Cached tokens by tier."""
    gaps: int
    publisher_restarts: int
    publishers: tuple[str, ...] = ()
    """Where events are published, or where publishers connect to us; empty if no port is known."""


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
    """The engine's last report."""
    index: Mapping[str, Held]
    """By producer, with its tier: ``cpu-prefix-cache-producer (cpu)``."""
    scrape: ScrapeState | None
    """None if the engines' metrics are not read."""
    kv_events: FromEvents | None = None
    """None if the engines' events are not followed."""


class PoolState(msgspec.Struct, Generic[EngineT], frozen=True):
    """The state of the whole pool."""

    pool: str
    in_flight: int
    """Requests in flight, including those of removed endpoints."""
    endpoints: tuple[EndpointState[EngineT], ...]
    answered_by: AnsweredBy | None = None
