"""Finds endpoints whose KV events do not arrive, so that a wrong port or a dead publisher is logged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from epp.kvevents.orders import Incomplete
from scorers.precise.status import EndpointStatus

PATIENCE_S = 10.0
"""How long an endpoint may be without a connection before it is logged. Connections recover, and the events of a short
break are replayed. A guess.
"""


class PublisherOutages:
    """Reports each endpoint once per outage of its connection. Owner: the event loop."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, str], float] = {}
        self._named: set[tuple[int, str]] = set()

    def look(self, statuses: Iterable[EndpointStatus], now: float) -> Iterator[EndpointStatus]:
        """Yield the endpoints that have been disconnected for ``PATIENCE_S`` and were not reported yet."""
        disconnected = [status for status in statuses if status.why == Incomplete.NOT_CONNECTED.value]
        silent = {(status.source, status.address): status for status in disconnected}
        self._since = {key: self._since.get(key, now) for key in silent}
        self._named &= silent.keys()
        for key, status in silent.items():
            if key not in self._named and now - self._since[key] >= PATIENCE_S:
                self._named.add(key)
                yield status
