"""The interface for fetching one page of an endpoint."""

from __future__ import annotations

from typing import Protocol

MAX_PAGE_BYTES = 8 << 20
HEADERS = {"Accept": "text/plain; version=0.0.4", "Accept-Encoding": "identity"}  # inflating costs more than reading


class Page(Protocol):
    """Fetches one page, for one task at a time. Owner: the event loop."""

    async def fetch(self) -> bytes:
        """Return the current page. Raises: ScrapeError for every failure."""

    def close(self) -> None:
        """Close the connection. The caller must cancel a ``fetch`` under way."""
