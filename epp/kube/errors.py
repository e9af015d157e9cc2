"""The errors of requests to the Kubernetes API."""

from __future__ import annotations


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
