"""What is known of every endpoint: as its engine said, as a decision sees it, and what the index believes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from epp.config.plan import Plan
from epp.explain.explanation import AnsweredBy
from epp.kvevents.wires import publishers_of
from epp.ledger import Ledger
from epp.pool import Pool
from epp.scrape.state import ScrapeState
from epp.seat import EngineMetrics
from scorers.base import Candidate, Mode
from scorers.precise_cache import Told
from scorers.precise_index import TIERS
from scorers.precise_parameters import PreciseParameters
from scorers.prefix_cache import PrefixCache

KNOWN = "known"


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
    mode: str = Mode.APPROXIMATE.value
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


class EndpointState(msgspec.Struct, frozen=True):
    """One endpoint. ``in_flight`` and its tokens are exact."""

    address: str
    name: str
    labels: Mapping[str, str]
    fresh: bool
    in_flight: int
    in_flight_tokens: int
    decision: Load
    engine: EngineMetrics
    """As it said last."""
    index: Mapping[str, Held]
    """By producer, with its tier: ``cpu-prefix-cache-producer (cpu)``."""
    scrape: ScrapeState | None
    """None where nothing reads the engines' metrics."""
    kv_events: FromEvents | None = None
    """None where nobody follows the engines' events."""


class PoolState(msgspec.Struct, frozen=True):
    """The whole pool."""

    pool: str
    in_flight: int
    """Requests, those of removed endpoints included."""
    endpoints: tuple[EndpointState, ...]
    answered_by: AnsweredBy | None = None


def pool_state(
    pool: Pool, ledger: Ledger, plan: Plan, scrapes: Callable[[], Mapping[str, ScrapeState]] | None
) -> PoolState:
    """A snapshot."""
    read = scrapes() if scrapes is not None else {}
    endpoints = [_endpoint(pool, c, plan, read.get(c.address)) for c in pool.candidates()]
    return PoolState(pool.name, len(ledger), tuple(endpoints))


def _endpoint(pool: Pool, candidate: Candidate, plan: Plan, scrape: ScrapeState | None) -> EndpointState:
    cache, precise = plan.prefix_cache, plan.precise
    told = precise.source.told(candidate.slot) if precise is not None and precise.source is not None else None
    return EndpointState(
        address=candidate.address,
        name=candidate.name,
        labels=candidate.labels,
        fresh=candidate.fresh,
        in_flight=candidate.in_flight,
        in_flight_tokens=candidate.in_flight_tokens,
        decision=Load(candidate.waiting, candidate.running, candidate.kv_usage),
        engine=pool.engine(candidate.address) or EngineMetrics(),
        index={} if cache is None else _held(cache, candidate, told),
        kv_events=None if told is None or precise is None else _from_events(told, candidate, precise.parameters),
        scrape=scrape,
    )


def _from_events(told: Told, candidate: Candidate, parameters: PreciseParameters) -> FromEvents:
    tokens = {tier.value: held for tier, held in zip(TIERS, told.tokens, strict=True)}
    publishers = publishers_of(candidate, parameters.kv_events_config)
    return FromEvents(told.why or KNOWN, tokens, told.gaps, told.restarts, publishers)


def _held(cache: PrefixCache, candidate: Candidate, told: Told | None) -> dict[str, Held]:
    slot = candidate.slot
    held: dict[str, Held] = {}
    for producer in cache.producers:
        mode, used_tokens = cache.mode(slot, producer.name), cache.used_tokens(slot, producer.name)
        if mode is Mode.PRECISE and told is not None:
            used_tokens = told.tokens[TIERS.index(producer.tier)]
        capacity_tokens = cache.capacity_tokens(slot, producer.name)
        held[f"{producer.name} ({producer.tier.value})"] = Held(capacity_tokens, used_tokens, mode.value)
    return held
