"""All refusals of the picker; each class fixes the HTTP status that its client sees.

Source: the status table of the Go picker (code word, status, dropped reason), kept so that clients and dashboards work
with either picker. Clients that speak gRPC get the gRPC status whose meaning is nearest.
"""

from __future__ import annotations

import math

from typing_extensions import override

DROPPED_REASON_HEADER = "x-llm-d-request-dropped-reason"


class EppError(Exception):
    """The base of every refusal. ``str(error)`` names the value, the limit and what to do.

    ``code`` is the word in the body ``inference error: <code> - <message>``; ``dropped_reason``, if set, is the
    value of ``DROPPED_REASON_HEADER``. ``wait_s`` is how long the client would wait for its turn; None if unknown.
    """

    http_status = 500
    code = "Internal"
    dropped_reason: str | None = None
    param: str | None = None
    """The field of the request that caused the refusal; None if no single field did."""

    def __init__(self, message: str, *, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s

    @property
    def retry_after_s(self) -> int | None:
        """Return the value of ``Retry-After``, in whole seconds; None if the same request would be refused again."""
        if self.http_status not in TEMPORARY:
            return None
        return math.ceil(min(MOST_RETRY_AFTER_S, max(LEAST_RETRY_AFTER_S, self.wait_s or 0.0)))

    @property
    def grpc_status(self) -> int:
        """Return the status for a client that speaks gRPC."""
        return GRPC_STATUS.get(self.http_status, 13)

    @property
    def body(self) -> str:
        """Return the body that the client reads, in the Go picker's form."""
        return f"inference error: {self.code} - {self}"


GRPC_STATUS = {400: 3, 404: 5, 412: 9, 413: 8, 429: 8, 503: 14}
"""INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, RESOURCE_EXHAUSTED, UNAVAILABLE; anything else is INTERNAL."""
TEMPORARY = (429, 503)
"""The statuses after which the same request may succeed."""
LEAST_RETRY_AFTER_S, MOST_RETRY_AFTER_S = 1, 60
"""The header has whole seconds; OpenAI's SDK ignores more than 60."""


class BadRequest(EppError):
    """The request cannot be understood: bad JSON, wrong shape, no parser for its path, no model."""

    http_status, code = 400, "BadRequest"


class UnsupportedEncoding(BadRequest):
    """The body of the request has a content encoding that the picker does not read."""

    @property
    @override
    def grpc_status(self) -> int:
        return 12  # UNIMPLEMENTED


class ModelNotFound(EppError):
    """No endpoint serves the model that the request names."""

    http_status, code, param = 404, "NotFound", "model"


class NoEndpoints(EppError):
    """No endpoint may serve the request: the pool is empty, or the subset contains none of its endpoints."""

    http_status, code, dropped_reason = 503, "ServiceUnavailable", "rejected-no-endpoints"


class Saturated(EppError):
    """The filters left no candidate."""

    http_status, code, dropped_reason = 429, "ResourceExhausted", "rejected-saturated"


class Shed(EppError):
    """The pool is full, and the request has a negative priority."""

    http_status, code = 429, "ResourceExhausted"


class QueueFull(EppError):
    """The pool is full, and no more requests of this priority may wait."""

    http_status, code, dropped_reason = 429, "ResourceExhausted", "rejected-saturated"


class WaitedTooLong(EppError):
    """The pool stayed full for as long as a request may wait."""

    http_status, code, dropped_reason = 429, "ResourceExhausted", "rejected-ttl-expired"


class ClientGone(EppError):
    """The client left while its request waited, so the refusal is only counted."""

    http_status, code, dropped_reason = 503, "ServiceUnavailable", "rejected-context-cancelled"


class ShuttingDown(EppError):
    """The picker is about to end, so no request may wait."""

    http_status, code, dropped_reason = 503, "ServiceUnavailable", "rejected-shutting-down"


class Evicted(EppError):
    """The request was in flight, and made room for one of a higher priority."""

    http_status, code, dropped_reason = 429, "ResourceExhausted", "evicted"

    @property
    def body(self) -> str:
        """Return the Go picker's body, which differs from the usual form."""
        return str(self)


class TooLarge(EppError):
    """The request body is larger than the picker reads."""

    http_status, code = 413, "RequestTooLarge"


def too_large(limit_bytes: int) -> str:
    """Return the sentence for a body above the limit, the same from the picker and from its proxy."""
    return f"the request body is larger than {limit_bytes:,} bytes, which is --max-request-bytes"


class HoldsTooMuch(EppError):
    """The picker holds as many bytes of request bodies as it may."""

    http_status, code = 503, "ServiceUnavailable"


class ConfigError(Exception):
    """A configuration that cannot be used; the message names the file, the key path and the allowed values."""
