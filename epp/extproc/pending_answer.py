"""The answer that the proxy gets when its request is placed."""

from __future__ import annotations

from dataclasses import dataclass, field

from epp.decision import Decision
from epp.extproc import messages
from epp.extproc.options import ExchangeSettings
from epp.extproc.templates import Place


@dataclass(slots=True)
class PendingAnswer:
    """The answer that the proxy waits for until its request is placed."""

    place: Place
    """The message that the answer is to."""
    forward: bytes | None = None
    """The client's body, where the proxy wants one back; None where it has kept it."""
    ends: bool = True
    """Whether that body ends the request."""
    after: list[bytes] = field(default_factory=list)
    """Answers that follow this one."""

    def messages(self, decision: Decision, settings: ExchangeSettings) -> list[bytes]:
        """Return all that is sent when ``decision`` has been made, in order."""
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
        body = self.forward if decision.body is None else decision.body
        return [answer, *messages.chunks("request_body", body, end_of_stream=self.ends), *self.after]
