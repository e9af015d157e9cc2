"""Logs once that the endpoints of a pool serve different models."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from epp.served.kind import Kind, base_names

log = logging.getLogger(__name__)

SHOWN = 4
"""Maximum number of groups, and of models and endpoints in each group, that a log line names."""


class Differing:
    """Logs each change of the sets of models once. Owner: the event loop."""

    def __init__(self) -> None:
        self._logged: frozenset[frozenset[str]] = frozenset()

    def look(self, kinds: Iterable[Kind], endpoints: Mapping[str, Kind], *, filters: bool) -> None:
        """Log if the base models of ``kinds`` have begun to differ, differ in another way, or are the same again.

        ``endpoints`` has the kind by address; ``filters`` is whether requests are routed by their model.
        """
        sets = {base_names(kind) for kind in kinds}
        # A single name in a larger set, too, is not a different model, but an alias or a metrics page's name.
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
