"""The values that pass between the exchange, the director and the parts that learn how a request ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from scorers.base import Candidate, Request, Tier

if TYPE_CHECKING:
    from epp.histogram import Histogram


class RequestHead(msgspec.Struct, frozen=True):
    """The head of a request: what is known of it before its body."""

    headers: Mapping[str, str]
    """Names are lower-case and include pseudo-headers; of a repeated header, the last value is kept."""
    subset: frozenset[str] | None = None
    """The ``address:port`` values that the proxy allows; None if it names no subset, empty if it allows none."""
    received_s: float = 0.0
    """The time of arrival on a monotonic clock; 0 if unknown. Units: seconds."""

    @property
    def path(self) -> str:
        """Return the request path without its query; proxies that replace it may keep it in another header."""
        for name in (":path", "x-original-path", "x-forwarded-path"):
            if value := self.headers.get(name):
                return value.partition("?")[0]
        return "/v1/completions"


class RequestLabels(NamedTuple):
    """The labels of the per-request metrics."""

    model_name: str = ""
    target_model_name: str = ""
    fairness_id: str = ""
    priority: int = 0


UNLABELLED = RequestLabels()
"""The labels of a request that was refused before its body was understood."""


class Decision(msgspec.Struct, frozen=True):
    """The endpoint to which a request goes, and the reasons."""

    pick_id: int
    """The picker's own id of this pick, since clients repeat request ids; it travels in the dynamic metadata."""
    chosen: tuple[Candidate, ...]
    """The pick first, then the fallbacks in order."""
    labels: RequestLabels
    request: Request | None = None
    """None for a request without a body, which is not scored."""
    body: bytes | None = None
    """The body that replaces the client's; None forwards the client's byte for byte."""
    scores: Mapping[str, tuple[float, list[float]]] = {}
    """By scorer name: the weight, and the score of each candidate in the order of ``candidates``."""
    candidates: tuple[Candidate, ...] = ()
    response_headers: Mapping[str, str] = {}
    """Headers to set on the response, with lower-case names; a proxy that keeps responses to itself sets none."""
    traceparent: str = ""
    """The header to set on the request; empty keeps the client's."""
    retried_at: tuple[str, ...] = ()
    """Further addresses for the proxy's retries, where its own choice could be an endpoint of another model."""

    @property
    def destination(self) -> str:
        """Return ``ip:port,ip:port``, the value of the destination header and metadata."""
        return ",".join([*[c.address for c in self.chosen], *self.retried_at])


MODEL_SERVER_ERROR = "ModelServerError"
"""The Go picker's word for a response whose status is not 200."""


class Cause(Enum):
    """The way in which a request ended."""

    COMPLETED = "completed"
    DISCONNECTED = "disconnected"
    """The client or the proxy ended the stream before the response did."""
    EVICTED = "evicted"
    """The picker ended it in favor of another one of higher priority."""
    UNREPORTED = "unreported"
    """The proxy has ended the stream, so the request is over, but its access log never reported the end."""
    LEASE_EXPIRED = "lease-expired"
    """No end was reported within the lease."""
    RECONCILED = "reconciled"
    """The endpoint's own counts show that it no longer has the request."""


class Usage(msgspec.Struct, frozen=True):
    """The counts that an engine reports in ``usage``. Units: tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    """None if the engine does not report it; vLLM reports it only when configured to."""
    cached_by_tier: Mapping[Tier, int] = {}
    """The same by tier, if the engine reports tiers."""


@dataclass(slots=True)
class Outcome:
    """The observations of a response; a field that was not observed is None. Units: seconds since receipt, bytes."""

    cause: Cause
    status: int | None = None
    duration_s: float | None = None
    ttft_s: float | None = None
    response_bytes: int | None = None
    streaming: bool = False
    usage: Usage | None = None
    served_by: str | None = None
    """The ``address:port`` that answered, perhaps a fallback; None if the proxy does not report it."""
    gaps: Histogram | None = None
    """The gaps between two pieces of a streamed body. Units: seconds."""
    errors: list[str] = field(default_factory=list)
    unanswered: bool = False
    """Whether the client left, or the request was ended, before the first byte of a stream."""

    @property
    def failed(self) -> bool:
        """Return whether the endpoint has not computed the prompt, as far as was observed."""
        return self.unanswered if self.status is None or 200 <= self.status < 300 else True


GOOD_STATUSES = (200, 101)
"""The statuses of a successful response; 101 begins a WebSocket."""
