"""Which endpoints nobody hears: a wrong port or a dead publisher must not be silent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from epp.kvevents.follower.stream import Why
from scorers.precise.cache import Told

PATIENCE_S = 10.0
"""An endpoint may go unheard for so long: connections come back, and events of a short break are replayed. A guess."""


class Unheard:
    """Names each endpoint once for every time that it goes unheard. Owner: the event loop."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, str], float] = {}
        self._named: set[tuple[int, str]] = set()

    def look(self, everyone: Iterable[Told], now: float) -> Iterator[Told]:
        """Those that have not been connected for ``PATIENCE_S`` and were not named yet."""
        silent = {(told.source, told.address): told for told in everyone if told.why == Why.NOT_CONNECTED.value}
        self._since = {key: self._since.get(key, now) for key in silent}
        self._named &= silent.keys()
        for key, told in silent.items():
            if key not in self._named and now - self._since[key] >= PATIENCE_S:
                self._named.add(key)
                yield told
