"""Tell an operator, once, that the endpoints of a pool serve different models."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from epp.served.kind import Kind, base_names

log = logging.getLogger(__name__)

SHOWN = 4
"""Groups of endpoints, models of a group and endpoints of a group that a line names."""


class Differing:
    """Remembers what was logged. Owner: the event loop."""

    def __init__(self) -> None:
        self._logged: frozenset[frozenset[str]] = frozenset()

    def look(self, kinds: Iterable[Kind], endpoints: Mapping[str, Kind], *, filters: bool) -> None:
        """Log when the base models that endpoints of these ``kinds`` serve have begun to differ, or differ in another
        way; ``endpoints`` has the kind by address.

        ``filters``: whether requests go to endpoints that serve their model.
        """
        sets = {base_names(kind) for kind in kinds}
        # One name among several of the same endpoints is no other model: an alias, or what a metrics page names.
        sets = {names for names in sets if names and not (len(names) == 1 and any(names < more for more in sets))}
        now = frozenset(sets) if len(sets) > 1 else frozenset[frozenset[str]]()
        if now == self._logged:
            return
        groups: dict[frozenset[str], list[str]] = {names: [] for names in now}
        for address, kind in endpoints.items() if now else ():
            if (names := base_names(kind)) in groups:
                groups[names].append(address)
        if now:
            log.warning(
                "the endpoints serve different models: %s; %s",
                "; ".join(_described(names, groups[names]) for names in sorted(groups, key=sorted)[:SHOWN])
                + (f"; and {len(groups) - SHOWN} other sets of models" if len(groups) > SHOWN else ""),
                "each request goes to endpoints that serve its model"
                if filters
                else "requests go to any of them, and those for another model fail: add the plugin served-model-filter",
            )
        else:
            log.info("all endpoints serve the same models again")
        self._logged = now


def _described(names: frozenset[str], addresses: Sequence[str]) -> str:
    return f"{_some(sorted(names))} at {_some(addresses)}"


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(text[:100] for text in texts[:SHOWN])
    return shown if len(texts) <= SHOWN else f"{shown} and {len(texts) - SHOWN} more"
