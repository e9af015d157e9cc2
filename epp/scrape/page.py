"""What can be fetched: one endpoint's metrics page."""

from __future__ import annotations

from typing import Protocol

MAX_PAGE_BYTES = 8 << 20
HEADERS = {"Accept": "text/plain; version=0.0.4", "Accept-Encoding": "identity"}  # inflating costs more than reading


class Page(Protocol):
    """Fetched by one task at a time. Owner: the event loop."""

    async def fetch(self) -> bytes:
        """The page as it is now. Raises: ScrapeError, for everything that can go wrong on the way."""

    def close(self) -> None:
        """Close what is kept open for it. A ``fetch`` under way is the caller's to cancel."""
