"""What both halves of an exchange know: its settings, how far a side has come, and how a decision is answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from msgspec import structs

from epp.decision import Decision
from epp.extproc import messages
from epp.extproc.options import ExchangeSettings
from epp.extproc.tier_question import with_question


class ProtocolViolation(Exception):
    """The proxy sent what no order of messages allows, or asks for a mode that cannot work."""


class Side(Enum):
    """How far one direction has come."""

    UNSEEN = "unseen"
    OPEN = "open"
    """The headers were seen; a body or trailers may follow."""
    TRAILERS = "trailers"
    """The body is complete or unwanted; trailers may follow."""
    ENDED = "ended"


@dataclass(slots=True)
class Asked:
    """The question that a decision answers."""

    place: messages.Place
    forward: bytes | None = None
    """The body to send on, where the proxy wants it back."""
    ends: bool = True
    """Whether that body ends the request."""
    after: list[bytes] = field(default_factory=list)
    """Answers that follow."""

    def with_question(self, decision: Decision, body: bytes) -> Decision:
        """``decision``, which has ``body`` sent with a question for kvengine, where that is to be asked."""
        asking = with_question(decision, body)
        if asking is None:
            return decision
        if self.forward is not None:
            self.forward = asking
        return structs.replace(decision, body=asking)

    def answers(self, decision: Decision, settings: ExchangeSettings) -> list[bytes]:
        """All that is to be sent, in order."""
        answer = messages.decided(
            self.place,
            decision,
            clear_route_cache=settings.clear_route_cache,
            emit_scores=settings.emit_endpoint_scores,
        )
        if decision.traceparent and self.place != "request_trailers":  # too late there to set a header
            answer += messages.with_traceparent(self.place, decision.traceparent)
        if self.forward is None:
            return [answer, *self.after]
        return [answer, *messages.chunks("request_body", self.forward, end_of_stream=self.ends), *self.after]
