"""The errors of requests to the Kubernetes API, and the sentences that they are made of."""

from __future__ import annotations

import os

from epp.kube.objects import Status

SHOWN = 200
"""How many characters of an answer that is not the API's own an error shows."""


class KubeError(Exception):
    """A request to the API server failed. The text names the request, what came back, and what to do."""

    retry_after_s: float | None = None
    """The seconds until the next request that the API server asks for; None if it names none."""


class Unreachable(KubeError):
    """No answer that belongs to the API: no connection, no trust, too slow, cut off, or a page of something else."""


class TooLarge(Unreachable):
    """An answer or an event has more bytes than are read."""


class NoConnection(Unreachable):
    """No connection to the API server could be made, so that no other request has an answer either."""


class Refused(KubeError):
    """The API server answered with an HTTP status from 400 up."""

    def __init__(self, text: str, *, status: int, reason: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        """The API's name of the refusal: ``Forbidden``, ``NotFound``, ``Expired``."""
        self.retry_after_s = retry_after_s

    @property
    def expired(self) -> bool:
        """Whether the requested version or page is no longer kept, so that the list must be read again."""
        return self.status == 410


def refusal(what: str, status: Status, code: int, retry_after_s: float | None = None) -> Refused:
    """Return the error for a refusal of the API, with the remedy where there is one that is always right."""
    remedy = {
        401: "; the token is missing, expired or of another cluster",
        403: "; a Role with this rule is missing, or its RoleBinding",
    }.get(code, "")
    wait = retry_after_s
    if wait is None and status.details is not None and status.details.retry_after_seconds > 0:
        wait = float(status.details.retry_after_seconds)
    text = f"{what}: {code} {status.reason}: {status.message}{remedy}"
    return Refused(text, status=code, reason=status.reason, retry_after_s=wait)


def system_words(error: OSError) -> str:
    """Return the system's words where there are any: asyncio has the address in place of them."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


def distrust(error: Exception) -> str:
    """Return why a certificate is refused, and what to check: the clock, or the authority."""
    text = str(error)
    if "not yet valid" in text or "has expired" in text:
        return f"not valid now: {text}; check the clock of this machine, and the certificate"
    return f"not trusted: {text}; check the certificate authority"


def seconds_in(text: str | None) -> float | None:
    """Return the seconds of a ``Retry-After``; None for a date, which the API server does not use."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def excerpt(body: bytes) -> str:
    """Return the beginning of an answer as it is shown in an error, quoted."""
    text = body[: 4 * SHOWN].decode("utf-8", "replace")
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
