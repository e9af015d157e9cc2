"""The values that pass between the exchange, the director and whoever learns how a request ended."""

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
    """What a stream says about a request before its body."""

    headers: Mapping[str, str]
    """Lower-case names, pseudo-headers included; the last of repeated ones."""
    subset: frozenset[str] | None = None
    """The ``address:port`` values the proxy allows; None when it names no subset, empty when it allows none."""
    received_s: float = 0.0
    """When, by the clock of the requests; 0 when nobody says."""

    @property
    def path(self) -> str:
        """The request path without its query; proxies that hide it may say it in another header."""
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
    """Where a request goes, and why."""

    pick_id: int
    """Our own id of this pick (clients repeat request ids); travels in the dynamic metadata."""
    chosen: tuple[Candidate, ...]
    """The pick first, then the fallbacks in order."""
    labels: RequestLabels
    request: Request | None = None
    """None for a request without a body: nothing was scored."""
    body: bytes | None = None
    """The body to send instead of the client's; None forwards the client's byte for byte."""
    scores: Mapping[str, tuple[float, list[float]]] = {}
    """By scorer name: its weight and its score of each candidate (``candidates`` order)."""
    candidates: tuple[Candidate, ...] = ()
    response_headers: Mapping[str, str] = {}
    """To be set on the response, lower-case names; a proxy that keeps responses to itself does not set them."""
    traceparent: str = ""
    """To be set on the request; empty to leave the client's as it is."""
    retried_at: tuple[str, ...] = ()
    """Further addresses for the proxy's retries, where its own choice could be an endpoint of another model."""

    @property
    def destination(self) -> str:
        """``ip:port,ip:port``, the value of the destination header and metadata."""
        return ",".join([*[c.address for c in self.chosen], *self.retried_at])


MODEL_SERVER_ERROR = "ModelServerError"
"""The Go picker's word for an answer whose status is not 200."""


class Cause(Enum):
    """How a request ended."""

    COMPLETED = "completed"
    DISCONNECTED = "disconnected"
    """The client or the proxy ended the stream before the response did."""
    EVICTED = "evicted"
    """We ended it, for another of higher priority."""
    UNREPORTED = "unreported"
    """The proxy has ended the stream, so the request is over, and its log never said how."""
    LEASE_EXPIRED = "lease-expired"
    """Nobody reported the end in time."""
    RECONCILED = "reconciled"
    """The endpoint's own counts say that it no longer has the request."""


class Usage(msgspec.Struct, frozen=True):
    """What an engine reports in ``usage``. Units: tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    """None for an engine that keeps it to itself, as vLLM does unless told otherwise."""
    cached_by_tier: Mapping[Tier, int] = {}
    """The same by tier, where the engine tells them apart."""


@dataclass(slots=True)
class Outcome:
    """What was observed of a response; fields that nobody observed stay None. Units: seconds from receipt, bytes."""

    cause: Cause
    status: int | None = None
    duration_s: float | None = None
    ttft_s: float | None = None
    response_bytes: int | None = None
    streaming: bool = False
    usage: Usage | None = None
    served_by: str | None = None
    """``address:port`` that really answered, where the proxy says so (a fallback, perhaps)."""
    gaps: Histogram | None = None
    """Seconds between two pieces of a streamed body."""
    errors: list[str] = field(default_factory=list)
    unanswered: bool = False
    """The client left, or was sent away, before the first byte of a stream."""

    @property
    def failed(self) -> bool:
        """Whether the endpoint has not computed the prompt, as far as that was seen."""
        return self.unanswered if self.status is None or 200 <= self.status < 300 else True


GOOD_STATUSES = (200, 101)
"""What an engine answers when all is well; 101 begins a WebSocket."""
