"""The interface of every source of endpoints. A new one is a file in this folder, and a branch in
``epp.server.endpoints``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from epp.metrics.gauges import Reading


class Discovery(Protocol):
    """Keeps a pool equal to a list of endpoints. Owner: the event loop."""

    @property
    def loaded(self) -> bool:
        """Whether a list was ever read; before that, no request should be served."""

    @property
    def trouble(self) -> str | None:
        """Why the list in use may be out of date; None while it is current."""

    async def start(self) -> None:
        """Begin to follow the list. Raises: ConfigError if that can never succeed."""

    async def stop(self) -> None:
        """Stop following; the pool stays as it is."""

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
