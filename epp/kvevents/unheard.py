"""Finds endpoints whose KV events do not arrive, so that a wrong port or a dead publisher is logged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from epp.kvevents.orders import Why
from scorers.precise.cache import Told

PATIENCE_S = 10.0
"""How long an endpoint may be without a connection before it is logged. Connections recover, and the events of a short
break are replayed. A guess.
"""


class Unheard:
    """Reports each endpoint once per outage of its connection. Owner: the event loop."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, str], float] = {}
        self._named: set[tuple[int, str]] = set()

    def look(self, everyone: Iterable[Told], now: float) -> Iterator[Told]:
        """Yield the endpoints that have been disconnected for ``PATIENCE_S`` and were not reported yet."""
        silent = {(told.source, told.address): told for told in everyone if told.why == Why.NOT_CONNECTED.value}
        self._since = {key: self._since.get(key, now) for key in silent}
        self._named &= silent.keys()
        for key, told in silent.items():
            if key not in self._named and now - self._since[key] >= PATIENCE_S:
                self._named.add(key)
                yield told
