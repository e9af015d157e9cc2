"""What went wrong with one reading."""

from __future__ import annotations

import errno
import socket
import ssl

ANSWERED = frozenset({"status", "size", "page"})
UNREACHED = frozenset({502, 503, 504})
"""What a proxy in front of an engine answers when it cannot reach it."""
OURS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EACCES, errno.ENETUNREACH}
)
"""Failures to connect that say nothing of the endpoint: this process or machine lacks something."""


class ScrapeError(Exception):
    """An endpoint's metrics could not be read; the message says what was met and, where it helps, what to do.

    ``reason`` is the word under which it is counted: connection, timeout, status, size, page, or internal. ``gone``
    says that nobody is there: the connection is refused, or closed without an answer (as proxies in front of a closed
    port do), or a proxy answers for an engine that it cannot reach.
    """

    def __init__(self, message: str, *, reason: str = "page", gone: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.gone = gone

    @property
    def answered(self) -> bool:
        """Whether somebody is there who answers, though not with a page that can be read."""
        return self.reason in ANSWERED and not self.gone


def unconnected(where: str, error: Exception) -> ScrapeError:
    """For a connection that could not be made or did not hold."""
    elsewhere = isinstance(error, ssl.SSLError | ssl.CertificateError | socket.gaierror | ValueError)
    gone = isinstance(error, OSError) and not elsewhere and error.errno not in OURS
    return ScrapeError(f"{where}: {str(error) or type(error).__name__}", reason="connection", gone=gone)


def refused(where: str, status: int) -> ScrapeError:
    """For an answer with another ``status`` than 200."""
    return ScrapeError(f"{where} answers with status {status}", reason="status", gone=status in UNREACHED)


def unasked(where: str, encoding: str) -> ScrapeError:
    """For a page that is compressed: a small one may be endless."""
    return ScrapeError(f"{where} is encoded as {encoding[:20]!r}, unasked; serve it as it is")
