"""Which endpoint serves which models, as far as the engines have reported it.

An endpoint that has not reported yet may serve every model. A name that no endpoint lists is tried at two kinds of
endpoints: those that have named only their first model (as a metrics page does), and those whose engine loads adapters
on demand.
"""

from __future__ import annotations

import msgspec

from scorers.candidate import Slot

MOST_REMEMBERED = 1024
"""Number of listed names whose endpoints are cached: engines may list thousands of adapters."""


class ReportedModels(msgspec.Struct, frozen=True):
    """The models that one endpoint reports to serve."""

    names: frozenset[str] = frozenset()
    """Base models, their aliases, and adapters; empty if the endpoint has not reported yet."""
    complete: bool = False
    """Whether the engine refuses every other name."""
    adapters: bool = False
    """Whether the endpoint can hold LoRA adapters, so that its engine may load one that it does not list."""

    @property
    def refuses_others(self) -> bool:
        """Whether a request for a name that the endpoint does not list would certainly fail."""
        return self.complete and not self.adapters


class ServedModels:
    """The models that each endpoint reports, by slot. A repeated lookup costs one dictionary access, and so does that
    of a name that no endpoint lists, however many such names clients invent.

    Invariant: ``_serving``, ``_unlisted`` and ``_names`` have answers according to the current reports. Owner: the
    event loop.
    """

    def __init__(self) -> None:
        self._reported: dict[Slot, ReportedModels] = {}
        self._serving: dict[tuple[str, bool], frozenset[Slot] | None] = {}  # of names that an endpoint lists
        self._unlisted: dict[bool, frozenset[Slot] | None] = {}  # the same answer for every other name
        self._names: frozenset[str] | None = None  # all listed names; None: not computed yet
        self._differ: bool | None = False  # None: not computed yet
        self.scans = 0
        """Number of lookups that had to be computed from all endpoints' reports."""

    def set(self, slot: Slot, models: ReportedModels) -> None:
        """Replace what the endpoint of ``slot`` has reported."""
        if self._reported.get(slot) != models:
            self._reported[slot] = models
            self._changed()

    def of(self, slot: Slot) -> ReportedModels:
        """Return what the endpoint of ``slot`` has reported."""
        return self._reported.get(slot, NOTHING)

    def forget(self, slot: Slot) -> None:
        """Drop what the endpoint of ``slot`` reported, because the endpoint was removed."""
        self._reported.pop(slot, None)
        self._changed()

    @property
    def differ(self) -> bool:
        """Whether two endpoints report different models, so that a request's model matters."""
        if self._differ is None:
            self._differ = len({models.names for models in self._reported.values()}) > 1
        return self._differ

    def serving(self, model: str, *, adapters_on_demand: bool = False) -> frozenset[Slot] | None:
        """Return the slots of the endpoints that may serve ``model``; None for all, as for a request without a model.

        With ``adapters_on_demand``, every endpoint that can hold adapters loads any requested one.
        """
        if not model:
            return None
        if self._names is None:
            self._names = frozenset[str]().union(*{models.names for models in self._reported.values()})
        if model not in self._names:
            if adapters_on_demand not in self._unlisted:
                self._unlisted[adapters_on_demand] = self._find(model, adapters_on_demand)
            return self._unlisted[adapters_on_demand]
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
        self._unlisted.clear()
        self._names = None
        self._differ = None

    def _find(self, model: str, adapters_on_demand: bool) -> frozenset[Slot] | None:
        self.scans += 1
        listing = {slot for slot, models in self._reported.items() if model in models.names}
        found = listing | {
            slot
            for slot, models in self._reported.items()
            if not models.names or (models.adapters and adapters_on_demand) or not (listing or models.refuses_others)
        }
        return None if len(found) == len(self._reported) else frozenset(found)


NOTHING = ReportedModels()
