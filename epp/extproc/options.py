"""The options of every exchange: the form of refusals, limits, and what is added to answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ErrorFormat(Enum):
    """The form in which a refusal is written."""

    TEXT = "text"
    """The Go picker's line of text, for every API."""
    API = "api"
    """The error object of the client's API, so that its SDK shows the sentence."""


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """The settings of every exchange of a process."""

    access_log: bool = False
    """Completions arrive by access log when a stream does not see the response's body."""
    max_request_bytes: int = 64 * 1024 * 1024
    error_format: ErrorFormat = ErrorFormat.TEXT
    any_subset: bool = True
    """Whether the proxy may narrow the choice to some endpoints."""
    emit_endpoint_scores: bool = False
    tell_decisions: bool = False
    """Whether a client may request, by a header, the reasons for where its request went."""
    may_ask: bool = False
    """The proxy sends more of a response than it would when an answer overrides its mode; only ever set for one that
    does (``allow_mode_override``)."""
    ask_kvengine: bool = False
    """Whether engines that run kvengine are asked which tier cached tokens came from, where the response is seen."""
    clear_route_cache: bool = True
    """Let the proxy choose the route again, with the destination header set. Off where a route is drawn at random."""
