"""One ext-proc exchange as a pure machine: the proxy's messages in, the picker's out. No I/O, no clock, no task.

    request headers ─► request body … ─► (trailers) ═ decision ═► response headers ─► response body … ─► (trailers)

Source: Envoy's ext_proc API, the Gateway API Inference Extension's endpoint-picker protocol. How each is answered
depends on the modes in the stream's first message; without any (older proxies) they are full duplex, as the
endpoint-picker protocol demands.

| request body mode | headers | body | trailers |
|---|---|---|---|
| FULL_DUPLEX_STREAMED | with the decision, when the body is complete | forwarded then, in chunks | end the body |
| BUFFERED | at once, empty | the decision | empty, or the decision when there was no body |
| NONE, or headers that end the stream | a decision without a body | | empty |

Which message may come when is in ``epp.extproc.transitions``; here is what each handler that it names does.

A decision may have to wait (``epp.flowcontrol.admission``): nothing is answered then until ``resumed``.

A response is watched, and changed where a plugin sets headers or the model was rewritten
(``epp.extproc.response_changes``); else headers and trailers are answered empty, bodies forwarded (full duplex) or
acknowledged.

Laws, tested as properties: what a client or an engine sent is forwarded byte for byte unless a rewrite applies; a pick
is ended exactly once whatever the order of events, or left to the access log when that is expected to report more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from msgspec import structs

from epp.decision import Decision, RequestHead
from epp.errors import ClientGone, EppError
from epp.extproc import messages
from epp.extproc.arriving_request import ArrivingRequest
from epp.extproc.body_budget import BodyBudget
from epp.extproc.options import ExchangeSettings
from epp.extproc.pending_answer import PendingAnswer
from epp.extproc.refusal import written
from epp.extproc.response import Response
from epp.extproc.tier_question import with_question
from epp.extproc.transitions import TRANSITIONS, ProtocolViolation, State, event_of, violation
from epp.flowcontrol.admission import Arrival, Resume, Wait
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.picking import decision_header
from epp.picking.director import Director
from epp.picking.request import MODEL_REWRITE, first
from epp.served.listing import ModelAnswer

__all__ = ["Exchange", "ProtocolViolation"]


def never_resumed(error: EppError | None) -> None:
    """Do nothing: the ``resume`` of an exchange that never waits."""


@dataclass(slots=True)
class _Waiting:
    """A request that is not placed yet."""

    wait: Wait
    arrival: Arrival
    answer: PendingAnswer


class Exchange:
    """One stream. Owner: the event loop.

    Invariant: at most one pick is open or one wait under way, never both; by the time ``closed`` returns the pick is
    ended or left to the access log, and the wait cancelled. A body is held (``epp.extproc.body_budget``) until its
    request is placed or refused.
    """

    def __init__(
        self,
        director: Director,
        settings: ExchangeSettings,
        resume: Resume = never_resumed,
        bodies: BodyBudget | None = None,
    ) -> None:
        """Make the exchange of one stream.

        ``resume`` is called when a request that waited, or one in flight that is to end, is to be ``resumed``. The
        request's body counts in ``bodies``, or in an account of its own.
        """
        self.over = False
        """The picker sends no more: the stream may be closed."""
        self._at = NODES[State.START]
        self._director = director
        self._settings = settings
        self._resume = resume
        self._waiting: _Waiting | None = None
        self._response = Response(director.picks, settings)
        self._request = ArrivingRequest(bodies or BodyBudget(), settings)

    @property
    def responding(self) -> bool:
        """Whether the response has begun."""
        return self._at.state.response != "unseen"

    def received(self, message: ProcessingRequest, now: float) -> list[bytes]:
        """Take the proxy's next message; returns the answers to send, in order.

        Raises: ProtocolViolation; the caller then calls ``closed`` and refuses the stream.
        """
        if message.observability_mode:
            self.over = True  # such a proxy takes no answer, so there is nothing to decide
            return []
        kind = message.WhichOneof("request")
        if kind is None:
            raise ProtocolViolation("a message without request or response")
        event = event_of(message, kind)
        try:
            handler, self._at = self._at.rules[event]
        except KeyError:
            raise violation(self._at.state, event, message) from None
        try:
            return handler(self, message, now)
        except EppError as error:
            self._forget_request()
            return self.refuse(error)

    def resumed(self, error: EppError | None, now: float) -> list[bytes]:
        """Take what ``resume`` was called with; returns the answers to send, in order.

        Does nothing unless the request waits, or is to end and has not begun to be answered.
        """
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            if error is None or self.over or self.responding or not self._response.evict(error.code, now):
                return []
            return self.refuse(error)
        self._request.release()
        if error is not None:  # not raised: its traceback would keep this frame alive, and this frame the error
            self._director.refused(waiting.arrival, error)
            return self.refuse(error)
        try:
            return self._answers(self._place(waiting.arrival), waiting.answer, waiting.answer.forward)
        except EppError as refusal:
            return self.refuse(refusal)

    def refuse(self, error: EppError) -> list[bytes]:
        """Return the answer that ends the request with ``error``, in the form that its client reads."""
        self.over = True
        return [messages.immediate(error, written(error, self._settings.error_format, self._request.client))]

    def closed(self, now: float) -> None:
        """End the exchange, for whatever reason its stream has ended. Does nothing the second time."""
        self.over = True
        self._resume = never_resumed  # or it would keep its owner alive, which owns this exchange
        self._forget_request()
        self._response.closed(now, unfinished=self._at.state.response == "open")

    # Handlers of the request, each named in ``TRANSITIONS``.

    def _collect_body(self, message: ProcessingRequest, now: float) -> list[bytes]:
        self._read_headers(message, now)
        return []

    def _await_body(self, message: ProcessingRequest, now: float) -> list[bytes]:
        head = self._read_headers(message, now)
        if self._settings.may_ask and not self._response.seen and (first(head, MODEL_REWRITE) or self._explains(head)):
            return [messages.ASK_FOR_RESPONSE_HEADERS]
        return [messages.CONTINUE_REQUEST_HEADERS]

    def _decide_by_headers(self, message: ProcessingRequest, now: float) -> list[bytes]:
        self._read_headers(message, now)
        return self._decide(b"", PendingAnswer("request_headers"))

    def _keep_piece(self, message: ProcessingRequest, now: float) -> list[bytes]:  # noqa: ARG002
        self._keep(message)
        return []

    def _decide_and_forward(self, message: ProcessingRequest, now: float) -> list[bytes]:  # noqa: ARG002
        self._keep(message)
        return self._decide_on_whole_body()

    def _decide_and_forward_at_trailers(self, message: ProcessingRequest, now: float) -> list[bytes]:  # noqa: ARG002
        return self._decide_on_whole_body(messages.CONTINUE_REQUEST_TRAILERS)

    def _decide_by_body(self, message: ProcessingRequest, now: float) -> list[bytes]:  # noqa: ARG002
        return self._decide(self._keep(message), PendingAnswer("request_body"))

    def _decide_without_body(self, message: ProcessingRequest, now: float) -> list[bytes]:  # noqa: ARG002
        return self._decide(b"", PendingAnswer("request_trailers"))

    def _pass_trailers(self, message: ProcessingRequest, now: float) -> list[bytes]:  # noqa: ARG002
        if self._waiting is None:
            return [messages.CONTINUE_REQUEST_TRAILERS]
        self._waiting.answer.after.append(messages.CONTINUE_REQUEST_TRAILERS)
        return []

    def _ignore(self, message: ProcessingRequest, now: float) -> list[bytes]:  # noqa: ARG002
        return []

    # Handlers of the response.

    def _begin_response(self, message: ProcessingRequest, now: float) -> list[bytes]:
        self._forget_request()  # it may be unfinished, or unseen
        return self._response.headers(message, now, ends=False)

    def _whole_response(self, message: ProcessingRequest, now: float) -> list[bytes]:
        self._forget_request()
        return self._response.headers(message, now, ends=True)

    def _response_piece(self, message: ProcessingRequest, now: float) -> list[bytes]:
        return self._response.body(message.response_body.body, now, ends=False)

    def _last_response_piece(self, message: ProcessingRequest, now: float) -> list[bytes]:
        return self._response.body(message.response_body.body, now, ends=True)

    def _response_trailers(self, message: ProcessingRequest, now: float) -> list[bytes]:
        return self._response.trailers(message, now)

    # What the handlers share.

    def _read_headers(self, message: ProcessingRequest, now: float) -> RequestHead:
        if message.HasField("protocol_config"):
            self._response.announce(message.protocol_config.response_body_mode)
        return self._request.begin(message, now)

    def _keep(self, message: ProcessingRequest) -> bytes:
        try:
            return self._request.keep(message)
        except EppError as error:
            self._director.refused_unread(self._request.head, error)
            raise

    def _explains(self, head: RequestHead) -> bool:
        return self._settings.tell_decisions and decision_header.asks(head.headers)

    def _decide_on_whole_body(self, *after: bytes) -> list[bytes]:
        forward = self._request.take_body()
        return self._decide(forward or b"", PendingAnswer("request_headers", forward, not after, list(after)))

    def _decide(self, body: bytes, answer: PendingAnswer) -> list[bytes]:
        head = self._request.take_head()
        if not body:  # an empty body is none, in whatever way the proxy sends it
            decided = self._director.decide_bodiless(head)
            if isinstance(decided, ModelAnswer):
                self.over = True
                return [messages.answered(decided)]
            return self._answers(decided, answer)
        arrival = self._director.read(head, body)
        if arrival.body is not None and answer.forward is not None:
            answer.forward = arrival.body  # the client's is not needed any more
        wait = self._director.admit(arrival, body, self._resume)
        if wait is None:
            return self._answers(self._place(arrival), answer, arrival.body or body)
        self._waiting = _Waiting(wait, arrival, answer)
        # The proxy limits how long an answer may take, except in full duplex.
        return [] if self._at.state is State.FORWARDED else [messages.more_time(wait.patience_s())]

    def _place(self, arrival: Arrival) -> Decision:
        seen = self._response.seen
        # A response whose beginning is not seen may be ended only if it comes as a whole.
        ends = seen or not arrival.request.streaming
        return self._director.place(arrival, self._resume if ends else None, seen=seen)

    def _answers(self, decision: Decision, answer: PendingAnswer, body: bytes | None = None) -> list[bytes]:
        self._request.release()
        if self._settings.ask_kvengine and body is not None and self._response.seen:
            asking = with_question(decision, body)
            if asking is not None:
                decision = structs.replace(decision, body=asking)
        self._response.expect(decision, self._request.began_s)
        return answer.messages(decision, self._settings)

    def _forget_request(self) -> None:
        """Let go of the prompt: a response may take minutes."""
        self._request.forget()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.wait.cancel()
            self._director.refused(waiting.arrival, ClientGone("the client left while its request waited"))


Handler: TypeAlias = Callable[[Exchange, ProcessingRequest, float], list[bytes]]


class Node(NamedTuple):
    """A state with what may come in it: handlers are looked up once, not for each message."""

    state: State
    rules: dict[str, tuple[Handler, Node]]


def bound() -> Mapping[State, Node]:
    """Return the nodes of ``TRANSITIONS``, with the methods that it names. Raises: AttributeError for one that is
    missing."""
    nodes = {state: Node(state, {}) for state in State}
    for (state, event), (handler, then) in TRANSITIONS.items():
        nodes[state].rules[event] = (getattr(Exchange, f"_{handler}"), nodes[then])
    return nodes


NODES = bound()
