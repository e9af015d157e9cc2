"""Whether a request that was understood may go on now, must wait, or is refused.

read ─► (token ids) ─► admit ─► place
             └─► waits ─►└─► waits ─► resumed once: placed, or refused

The step before, ``epp.tokens``, has the same kind of wait.
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
    """A request that was read and is to be placed."""

    head: RequestHead
    request: Request
    labels: RequestLabels
    size_bytes: int
    """Of the body as the client sent it."""
    body: bytes | None = None
    """What to send instead of it; None for the same bytes."""
    traceparent: str = ""
    """What the engine is to be told of the trace; empty to leave the client's as it is."""
    trace: Trace | None = None
    """Where this request is traced."""


MOST_PATIENCE_S = 3600.0
"""The most time that a proxy grants one message. Source: the rule that Envoy checks ``max_message_timeout`` by."""

Resume: TypeAlias = Callable[[EppError | None], None]
"""Called on the event loop, never inside ``admit`` or ``cancel``: None when the request may go on. Once for a request
that waits; with an error for one in flight that is to end, as often as anybody tries."""


class Wait(Protocol):
    """A request that waits. Small: a picker may hold a hundred thousand."""

    def patience_s(self) -> float:
        """How much time to ask of the proxy, at most ``MOST_PATIENCE_S``; asked once, and the wait ends before."""

    def cancel(self) -> None:
        """Nobody waits any more: forget it now. Does nothing once it was resumed."""


class Admission(Protocol):
    """Owner: the event loop."""

    def admit(self, arrival: Arrival, resume: Resume) -> Wait | None:
        """None when the request may go on now, to be placed before anybody else asks; else it waits for ``resume``.

        Raises: EppError when it is refused; nothing waits then.
        """

    def patience_s(self) -> float:
        """The longest that a request which comes now may ask a proxy to wait with it; 0 where nobody waits."""

    def placed(self, arrival: Arrival, pick_id: int, resume: Resume) -> None:
        """A request is in flight, and may be ended for others by calling ``resume`` with an error."""

    def ended(self, pick_id: int, labels: RequestLabels, outcome: Outcome) -> None:
        """A request that was placed has ended."""
