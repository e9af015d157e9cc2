"""The models that each endpoint serves, by its ``/v1/models`` or, while that is unknown, by its metrics page."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from epp.metrics.gauges import Reading
from epp.metrics.series import Names
from epp.pool.seat import EngineMetrics
from epp.served.aliases import aliases_of
from epp.served.card import ModelCard
from epp.served.differing import Differing
from epp.served.kind import Kind, base_names
from scorers.base import Candidate, Slot
from scorers.labels.served_models import ReportedModels, ServedModels

log = logging.getLogger(__name__)

MOST_NAMES = 200
"""Number of models that the metrics distinguish: engines name them, and an engine may list thousands of adapters."""


class EngineTable(Protocol):
    """The interface of ``epp.pool.pool.Pool`` that is used here."""

    def engine(self, address: str) -> EngineMetrics | None:
        """Return the last numbers of the engine at ``address``."""

    def candidate(self, address: str) -> Candidate | None:
        """Return the endpoint at ``address`` as it is now."""


class _Listed(NamedTuple):
    """The last list of one endpoint, with what is derived from it."""

    cards: tuple[ModelCard, ...]
    names: frozenset[str]
    kind: Kind
    complete: bool
    """Whether its engine refuses every other name."""


class Catalog:
    """The model cards of all endpoints. It is a listener of the pool. Owner: the event loop.

    Invariant: ``served`` has, for each endpoint in the pool, the names of its cards, or those of its metrics page if it
    has not listed its models.
    """

    def __init__(self, engines: EngineTable, forget: Callable[[Candidate], None]) -> None:
        """``forget`` is called with an endpoint that serves other models than before, so that its cached blocks are
        dropped from the index."""
        self.served = ServedModels()
        self.on_outdated: list[Callable[[str | None], None]] = []
        """Callbacks for the address of an endpoint whose list may be out of date; None for all endpoints."""
        self.lists_answered = 0
        """Number of requests for the list, or for one model of it, that the picker answered."""
        self.aliases: Mapping[str, str] = {}
        """By each name of a base model with several names, the one that stands for all of them."""
        self.filters = False
        """Whether requests are routed by this catalog."""
        self.edition = 0
        """The version of all cards together. It changes with each change that clients can see."""
        self._engines = engines
        self._forget = forget
        self._slots: dict[str, Slot] = {}  # by address
        self._lists: dict[str, _Listed] = {}  # by address; of endpoints that have listed their models
        self._bases: dict[str, Kind] = {}  # by address, the last known ones
        self._kinds: dict[str, Kind] = {}  # by address; empty for an endpoint that reports no models
        self._alike: Counter[Kind] = Counter()
        self._differing = Differing()

    def cards(self, address: str) -> Sequence[ModelCard] | None:
        """Return the cards of the endpoint at ``address``, or None if it has not listed its models."""
        listed = self._lists.get(address)
        return None if listed is None else listed.cards

    def names(self, address: str) -> frozenset[str]:
        """Return the names that the endpoint at ``address`` reports to serve."""
        slot = self._slots.get(address)
        return frozenset() if slot is None else self.served.of(slot).names

    def listed(self, address: str) -> frozenset[str] | None:
        """Return the names in the list of the endpoint at ``address``, or None if it has not listed its models."""
        listed = self._lists.get(address)
        return None if listed is None else listed.names

    def base_names(self) -> list[str]:
        """Return the names of all base models, sorted."""
        return sorted({name for kind in self._alike for name in base_names(kind)})

    def set_list(self, address: str, cards: Sequence[ModelCard], *, complete: bool) -> None:
        """Set the list of the endpoint at ``address``. ``complete`` means that its engine refuses every other name."""
        if address not in self._slots:
            return
        known = self._lists.get(address)
        if known is None or [c.shown_fields for c in known.cards] != [c.shown_fields for c in cards]:
            names = frozenset([card.id for card in cards])
            kind = frozenset([(card.id, card.root, card.parent) for card in cards])
            self._lists[address] = _Listed(tuple(cards), names, kind, complete)
            self.edition += 1
        elif known.complete != complete:
            self._lists[address] = known._replace(complete=complete)
        bases = frozenset((card.id, card.root, None) for card in cards if card.parent is None)
        before, self._bases[address] = self._bases.get(address, bases), bases
        if before != bases and (candidate := self._engines.candidate(address)) is not None:
            log.info("endpoint %s: it serves other models than before, and counts as empty", address)
            self._forget(candidate)
        self._update(address)

    def remove_list(self, address: str) -> None:
        """Drop the list of the endpoint at ``address``, because it has none, or none that can be read."""
        if self._lists.pop(address, None) is not None:
            self.edition += 1
            self._update(address)

    def mark_outdated(self, address: str | None) -> None:
        """Have the list of the endpoint at ``address`` read again; None for the lists of all endpoints."""
        for notify in self.on_outdated:
            notify(address)

    # PoolListener

    def endpoint_added(self, candidate: Candidate) -> None:
        """Begin with a new endpoint, whose models are unknown."""
        self._slots[candidate.address] = candidate.slot
        self._update(candidate.address)

    def endpoint_removed(self, slot: Slot, address: str) -> None:
        """Drop everything about a removed endpoint."""
        self.served.forget(slot)
        self.edition += 1
        for table in (self._slots, self._bases, self._lists):
            table.pop(address, None)
        self._count(address, None)

    def engine_reported(self, candidate: Candidate) -> None:
        """Update an endpoint whose metrics page may name other models, or places for adapters."""
        self._update(candidate.address)

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics for ``Telemetry.gauge_source``."""
        named = Counter(name for slot in self._slots.values() for name in self.served.of(slot).names)
        labels, counts = Names(MOST_NAMES), Counter[str]()
        for name, count in named.items():
            counts[labels.bounded(name)] += count
        yield Reading(
            "tierwise_served_models",
            "Endpoints that are known to serve a model or adapter.",
            ("model",),
            [((name,), count) for name, count in counts.items()],
        )
        text = "Endpoints that have not listed their models."
        yield Reading("tierwise_endpoints_without_model_list", text, (), [((), len(self._slots) - len(self._lists))])
        text = "Requests for /v1/models that were answered by the picker."
        yield Reading("tierwise_model_lists_answered", text, (), [((), self.lists_answered)], counter=True)

    def _update(self, address: str) -> None:
        slot, listed, engine = self._slots[address], self._lists.get(address), self._engines.engine(address)
        adapters = engine is not None and engine.lora.max_loras > 0
        if listed is not None:
            models = ReportedModels(listed.names, listed.complete, adapters)
        else:
            names = engine.models if engine is not None else frozenset()
            models = ReportedModels(names, complete=False, adapters=adapters)
        changed = address not in self._kinds or models != self.served.of(slot)
        if changed:
            self.served.set(slot, models)
        if listed is not None:
            self._count(address, listed.kind)
        elif changed:
            self._count(address, frozenset([(name, None, None) for name in models.names]))

    def _count(self, address: str, kind: Kind | None) -> None:
        """Set the kind of the endpoint at ``address``; None removes it."""
        before = self._kinds.get(address)
        if kind is None:
            self._kinds.pop(address, None)
        else:
            self._kinds[address] = kind
        if kind == before:
            return
        kinds = len(self._alike)
        if kind is not None:
            self._alike[kind] += 1
            new = self._alike[kind] == 1
        else:
            new = False
        if before is not None:
            self._alike[before] -= 1
            if not self._alike[before]:
                del self._alike[before]
        if new or len(self._alike) != kinds:
            self.aliases = aliases_of(self._alike)
            self._differing.look(self._alike, self._kinds, filters=self.filters)
