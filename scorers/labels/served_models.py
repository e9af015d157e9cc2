"""Which endpoint serves which models, as far as the engines have said it.

An endpoint that has not said anything may serve every model. One that has named its first model only (a metrics page
does that) or whose engine loads adapters when they are asked for is tried for a name that no endpoint lists.
"""

from __future__ import annotations

import msgspec

from scorers.candidate import Slot

MOST_REMEMBERED = 1024
"""Names whose endpoints are kept: clients choose names, and one that nobody asks for again must not take memory."""


class Said(msgspec.Struct, frozen=True):
    """What one endpoint says it serves."""

    names: frozenset[str] = frozenset()
    """Base models, their aliases, and adapters; empty: it has not said."""
    complete: bool = False
    """Whether its engine refuses every other name."""
    adapters: bool = False
    """Whether it has places for LoRA adapters, so that its engine may load one that it does not list."""

    @property
    def refuses_others(self) -> bool:
        """Whether a request for a name that it does not list would be in vain."""
        return self.complete and not self.adapters


class ServedModels:
    """What each endpoint has said, by slot. A question that was asked before costs one lookup.

    Invariant: ``_serving`` holds answers to what is said now. Owner: the event loop.
    """

    def __init__(self) -> None:
        self._said: dict[Slot, Said] = {}
        self._serving: dict[tuple[str, bool], frozenset[Slot] | None] = {}
        self._differ: bool | None = False  # None: to be found out
        self.scans = 0
        """Answers that had to be computed from what every endpoint says."""

    def say(self, slot: Slot, said: Said) -> None:
        """Take what the endpoint of ``slot`` says instead of what it said before."""
        if self._said.get(slot) != said:
            self._said[slot] = said
            self._changed()

    def said(self, slot: Slot) -> Said:
        """What the endpoint of ``slot`` has said."""
        return self._said.get(slot, NOTHING)

    def forget(self, slot: Slot) -> None:
        """Drop what the endpoint of ``slot`` said: it is gone."""
        self._said.pop(slot, None)
        self._changed()

    @property
    def differ(self) -> bool:
        """Whether two endpoints have said different things, so that a request's model matters."""
        if self._differ is None:
            self._differ = len({said.names for said in self._said.values()}) > 1
        return self._differ

    def serving(self, model: str, *, adapters_on_demand: bool = False) -> frozenset[Slot] | None:
        """The slots of the endpoints that may serve ``model``; None for all of them, as for a request without a model.

        ``adapters_on_demand``: every endpoint with places for adapters loads whichever is asked for.
        """
        key = (model, adapters_on_demand)
        try:
            return self._serving[key]
        except KeyError:
            if len(self._serving) >= MOST_REMEMBERED:
                self._serving.clear()
            found = self._serving[key] = self._find(model, adapters_on_demand)
            return found

    def _changed(self) -> None:
        self._serving.clear()
        self._differ = None

    def _find(self, model: str, adapters_on_demand: bool) -> frozenset[Slot] | None:
        self.scans += 1
        if not model:
            return None
        listing = {slot for slot, said in self._said.items() if model in said.names}
        found = listing | {
            slot
            for slot, said in self._said.items()
            if not said.names or (said.adapters and adapters_on_demand) or not (listing or said.refuses_others)
        }
        return None if len(found) == len(self._said) else frozenset(found)


NOTHING = Said()
