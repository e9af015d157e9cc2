"""The interface that decides whether a parsed request goes on now, waits, or is refused.

read ─► (token ids) ─► admit ─► place
             └─► waits ─►└─► waits ─► resumed once: placed, or refused

The step before it, ``epp.tokens``, uses the same kind of wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from epp.decision import Outcome, RequestHead, RequestLabels
from epp.errors import EppError
from epp.tracing.trace import Trace
from scorers.base import Request


class Arrival(msgspec.Struct, frozen=True):
    """A request that was parsed and is not placed yet."""

    head: RequestHead
    request: Request
    labels: RequestLabels
    size_bytes: int
    """The size of the body as the client sent it."""
    body: bytes | None = None
    """The body to send instead of the client's; None for the same bytes."""
    traceparent: str = ""
    """The header ``traceparent`` for the engine; empty to leave the client's as it is."""
    trace: Trace | None = None
    """The trace of this request; None if it is not traced."""


MOST_PATIENCE_S = 3600.0
"""Maximum time that a proxy grants one message. Source: Envoy's validation rule for ``max_message_timeout``."""

Resume: TypeAlias = Callable[[EppError | None], None]
"""A callback on the event loop, never called inside ``admit`` or ``cancel``. For a request that waits, it is called
once: with None when the request may go on, else with the error that refuses it. For a request in flight, it is called
with an error on each attempt to end it."""


class Wait(Protocol):
    """The wait of one request. It is small, since a picker may hold a hundred thousand."""

    def patience_s(self) -> float:
        """Return how long the proxy must wait, at most ``MOST_PATIENCE_S``; called once. The wait ends before that."""

    def cancel(self) -> None:
        """Drop the request, because its client has left. Does nothing once the request was resumed."""


class Admission(Protocol):
    """Decides which requests go on. Owner: the event loop."""

    def admit(self, arrival: Arrival, resume: Resume) -> Wait | None:
        """Return None if the request may go on now; the caller then places it before any other call. Else it waits
        until ``resume`` is called.

        Raises: EppError if the request is refused; nothing waits then.
        """

    def patience_s(self) -> float:
        """Return the longest wait of a request that arrives now; 0 if there are no queues."""

    def placed(self, arrival: Arrival, pick_id: int, resume: Resume) -> None:
        """Note a request in flight, which ``resume``, called with an error, ends in favor of others."""

    def ended(self, pick_id: int, labels: RequestLabels, outcome: Outcome) -> None:
        """Note that a placed request has ended."""
