"""Parses HTTP/1 responses to requests for a page: bytes in, a page or an error out.

The grammar is that of httptools (llhttp). Redirects are not followed: an address that redirects is not the engine's.
"""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from epp.scrape.page import MAX_PAGE_BYTES
from epp.scrape.reading.error import ScrapeError, encoded, refused

MAX_HEAD_BYTES = 1 << 16
MAX_PARTS = 1 << 16
"""Maximum number of chunks of a page: chunks of one byte would cost far more than their size."""
_FRAMING = (b"content-length", b"transfer-encoding")


class Unanswered(ScrapeError):
    """Raised if the connection ended before the first byte of a response."""


class Answers:
    """The responses on one connection, one at a time: ``expect``, then ``feed`` until it returns the page.

    Invariant: unless ``keep``, the connection cannot be used for another request. An error sets ``keep`` to False.
    """

    def __init__(self, where: str) -> None:
        """``where`` is the page's URL, for error messages."""
        self.keep = True
        self._where = where
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self.expect()

    def expect(self) -> None:
        """Reset the state for the response to a new request."""
        self._status = 0  # until the head of the final response is complete
        self._ends_itself = False
        self._encoding = b""
        self._parts: list[bytes] = []
        self._received_bytes = 0
        self._complete = False
        self._taken = False

    def feed(self, data: bytes) -> bytes | None:
        """Return the page once it is complete; None before. Raises: ScrapeError."""
        self._received_bytes += len(data)
        if self._parser is None:
            raise self.unanswered()
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.keep = False  # status 101, which is an error as any other
        except HttpParserError as error:
            self.keep = False
            if not self._complete and self._status in (0, 200):
                raise ScrapeError(f"{self._where} does not speak HTTP/1.1: {error}", reason="connection") from error
        self._check()
        return self._take() if self._complete and not self._taken else None

    def end(self) -> bytes:
        """Return the page, if the end of the connection completes it. Raises: ScrapeError."""
        self.keep = False
        if not self._received_bytes:
            raise self.unanswered()
        if not self._status or self._ends_itself:
            raise ScrapeError(f"{self._where} closes the connection within its answer", reason="connection")
        return self._take()

    def drop(self) -> None:
        """Release the data and the parser, which refers back to this object, at the end of the connection."""
        self.keep = False
        self._parts = []
        self._parser = None

    def _take(self) -> bytes:
        """Return the page and release it here, since it may be large and the next one is far off."""
        self._taken = True
        parts, self._parts = self._parts, []
        return b"".join(parts)

    def unanswered(self) -> Unanswered:
        """Return the error for a connection that ended without a response."""
        return Unanswered(f"{self._where} closes the connection without an answer", reason="connection", gone=True)

    def _check(self) -> None:
        """Check the status, the size and the encoding read so far. Raises: ScrapeError."""
        if self._status not in (0, 200):
            self.keep = False
            raise refused(self._where, self._status)
        if not self._status and self._received_bytes > MAX_HEAD_BYTES:
            self.keep = False
            raise ScrapeError(f"{self._where} sends more than {MAX_HEAD_BYTES} bytes of headers", reason="connection")
        if len(self._parts) > MAX_PARTS:
            self.keep = False
            raise ScrapeError(f"{self._where} sends more than {MAX_PARTS} pieces", reason="size")
        if self._received_bytes > MAX_PAGE_BYTES:
            self.keep = False
            raise ScrapeError(f"{self._where} sends more than {MAX_PAGE_BYTES >> 20} MiB", reason="size")
        if self._encoding not in (b"", b"identity"):
            self.keep = False
            raise encoded(self._where, self._encoding.decode("latin-1"))

    # The parser's callbacks

    def on_message_begin(self) -> None:
        """Note a status line; after a complete page, it is not a response to a request."""
        if self._complete:
            self.keep = False  # more responses than requests

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note the framing and the encoding; called for trailers, too."""
        name = name.lower()
        if name in _FRAMING:
            self._ends_itself = True
        elif name == b"content-encoding":
            self._encoding = value.strip().lower()

    def on_headers_complete(self) -> None:
        """Take the status of the response."""
        if not self._complete and self._parser is not None:
            self._status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        """Add a part of the page."""
        if not self._complete:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        """Complete the page, or skip a provisional response."""
        if self._complete or self._parser is None:
            return
        if 100 <= self._status < 200 and self._status != 101:
            self._status, self._ends_itself = 0, False
            return
        self.keep = self.keep and self._parser.should_keep_alive()
        self._complete = True
