"""The error for a metrics page that could not be fetched or read."""

from __future__ import annotations

import errno
import socket
import ssl

ANSWERED = frozenset({"status", "size", "page"})
UNREACHED = frozenset({502, 503, 504})
"""The statuses with which a proxy answers for an engine that it cannot reach."""
OURS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EACCES, errno.ENETUNREACH}
)
"""Failures to connect that are not the endpoint's fault: this process or machine lacks a resource."""


class ScrapeError(Exception):
    """Raised if an endpoint's metrics could not be read; the message has the cause and, where it helps, what to do.

    ``reason`` is the word under which it is counted: connection, timeout, status, size, page, or internal. ``gone``
    means that no engine is there: the connection was refused, or closed without a response (as proxies in front of a
    closed port do), or a proxy answered for an engine that it cannot reach.
    """

    def __init__(self, message: str, *, reason: str = "page", gone: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.gone = gone

    @property
    def answered(self) -> bool:
        """Whether the endpoint answered, though not with a page that can be read."""
        return self.reason in ANSWERED and not self.gone


def unconnected(where: str, error: Exception) -> ScrapeError:
    """Return the error for a connection that could not be made, or that broke."""
    elsewhere = isinstance(error, ssl.SSLError | ssl.CertificateError | socket.gaierror | ValueError)
    gone = isinstance(error, OSError) and not elsewhere and error.errno not in OURS
    return ScrapeError(f"{where}: {str(error) or type(error).__name__}", reason="connection", gone=gone)


def refused(where: str, status: int) -> ScrapeError:
    """Return the error for a response with another ``status`` than 200."""
    return ScrapeError(f"{where} answers with status {status}", reason="status", gone=status in UNREACHED)


def encoded(where: str, encoding: str) -> ScrapeError:
    """Return the error for a compressed page, which is not read because a small one may expand without end."""
    return ScrapeError(f"{where} is encoded as {encoding[:20]!r}, unasked; serve it as it is")
