"""What went wrong with one reading."""

from __future__ import annotations


class ScrapeError(Exception):
    """An endpoint's metrics could not be read; the message says what was met and, where it helps, what to do.

    ``reason`` is the word under which it is counted: connection, timeout, status, size, or page.
    """

    def __init__(self, message: str, *, reason: str = "page") -> None:
        super().__init__(message)
        self.reason = reason


def unasked(where: str, encoding: str) -> ScrapeError:
    """For a page that is compressed: a small one may be endless."""
    return ScrapeError(f"{where} is encoded as {encoding[:20]!r}, unasked; serve it as it is")
