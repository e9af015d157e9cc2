"""A snapshot of every endpoint: its engine's report, the load that a decision uses, and the index."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from epp.config.plan import Plan
from epp.explain.pool_state import KNOWN, EndpointState, FromEvents, Held, Load, PoolState
from epp.kvevents.wires import publishers_of
from epp.pool.ledger import Ledger
from epp.pool.pool import Pool
from epp.pool.seat import EngineMetrics
from epp.scrape.state import ScrapeState
from scorers.base import Candidate, Mode
from scorers.precise.index import TIERS
from scorers.precise.parameters import PreciseParameters
from scorers.precise.status import EndpointStatus
from scorers.prefix.cache import PrefixCache


def pool_state(
    pool: Pool, ledger: Ledger, plan: Plan, scrapes: Callable[[], Mapping[str, ScrapeState]] | None
) -> PoolState[EngineMetrics]:
    """Return a snapshot of the pool."""
    read = scrapes() if scrapes is not None else {}
    endpoints = [_endpoint(pool, c, plan, read.get(c.address)) for c in pool.candidates()]
    return PoolState(pool.name, len(ledger), tuple(endpoints))


def _endpoint(pool: Pool, candidate: Candidate, plan: Plan, scrape: ScrapeState | None) -> EndpointState[EngineMetrics]:
    cache, precise = plan.prefix_cache, plan.precise
    status = precise.source.status(candidate.slot) if precise is not None and precise.source is not None else None
    return EndpointState(
        address=candidate.address,
        name=candidate.name,
        labels=candidate.labels,
        fresh=candidate.fresh,
        in_flight=candidate.in_flight,
        in_flight_tokens=candidate.in_flight_tokens,
        decision=Load(candidate.waiting, candidate.running, candidate.kv_usage),
        engine=pool.engine(candidate.address) or EngineMetrics(),
        index={} if cache is None else _held(cache, candidate, status),
        kv_events=None if status is None or precise is None else _from_events(status, candidate, precise.parameters),
        scrape=scrape,
    )


def _from_events(status: EndpointStatus, candidate: Candidate, parameters: PreciseParameters) -> FromEvents:
    tokens = {tier.value: held for tier, held in zip(TIERS, status.tokens, strict=True)}
    publishers = publishers_of(candidate, parameters.kv_events_config)
    return FromEvents(status.why or KNOWN, tokens, status.gaps, status.restarts, publishers)


def _held(cache: PrefixCache, candidate: Candidate, status: EndpointStatus | None) -> dict[str, Held]:
    slot = candidate.slot
    held: dict[str, Held] = {}
    for producer in cache.producers:
        mode, used_tokens = cache.mode(slot, producer.name), cache.used_tokens(slot, producer.name)
        if mode is Mode.PRECISE and status is not None:
            used_tokens = status.tokens[TIERS.index(producer.tier)]
        capacity_tokens = cache.capacity_tokens(slot, producer.name)
        held[f"{producer.name} ({producer.tier.value})"] = Held(capacity_tokens, used_tokens, mode.value)
    return held
