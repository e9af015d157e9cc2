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

A decision may have to wait (``epp.flowcontrol.admission``): nothing is answered then until ``resumed``.

A response is watched, and changed where a plugin sets headers or the model was rewritten
(``epp.extproc.response_changes``); else headers and trailers are answered empty, bodies forwarded (full duplex) or
acknowledged.

Laws, tested as properties: what a client or an engine sent is forwarded byte for byte unless a rewrite applies; a pick
is ended exactly once whatever the order of events, or left to the access log when that is expected to tell more.
"""

from __future__ import annotations

from dataclasses import dataclass

from epp.client import Client, client_of
from epp.decision import Decision, RequestHead
from epp.errors import ClientGone, EppError
from epp.extproc import messages
from epp.extproc.options import ExchangeSettings
from epp.extproc.pending_answer import Asked, ProtocolViolation, Side
from epp.extproc.refusal import written
from epp.extproc.request_body import RequestBody
from epp.extproc.response import Response
from epp.flowcontrol.admission import Arrival, Resume, Wait
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.pb.processing_mode_pb2 import ProcessingMode
from epp.picking.director import Director
from epp.picking.request import MODEL_REWRITE, first
from epp.served.listing import ModelAnswer

__all__ = ["Exchange", "ProtocolViolation"]


def unheard(error: EppError | None) -> None:
    """The ``resume`` of an exchange that never waits."""


FULL_DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED
MODE_NAMES = {number: name for name, number in ProcessingMode.BodySendMode.items()}
BUFFERED = (ProcessingMode.BUFFERED, ProcessingMode.BUFFERED_PARTIAL)


@dataclass(slots=True)
class _Waiting:
    """A request that is not placed yet."""

    wait: Wait
    arrival: Arrival
    asked: Asked


class Exchange:
    """One stream. Owner: the event loop.

    Invariant: at most one pick is open or one wait under way, never both; by the time ``closed`` returns the pick is
    ended or left to the access log, and the wait cancelled. A body is held (``epp.picking.body_budget``) until its
    request is placed or goes nowhere.
    """

    def __init__(self, director: Director, settings: ExchangeSettings, resume: Resume = unheard) -> None:
        """``resume`` is called when a request that waited, or one in flight that is to end, is to be ``resumed``."""
        self.over = False
        """The picker has nothing more to say: the stream may be closed."""
        self._director = director
        self._settings = settings
        self._resume = resume
        self._waiting: _Waiting | None = None
        self._request = Side.UNSEEN
        self._response = Response(director, settings)
        self._request_mode = FULL_DUPLEX
        self._head: RequestHead | None = None
        self._client = Client()
        self._body = RequestBody(director.held, settings.max_request_bytes)
        self._began = 0.0

    @property
    def responding(self) -> bool:
        """Whether the response has begun."""
        return self._response.begun

    def received(self, message: ProcessingRequest, now: float) -> list[bytes]:
        """Take the proxy's next message; returns the answers to send, in order.

        Raises: ProtocolViolation; the caller then calls ``closed`` and refuses the stream.
        """
        if message.observability_mode:
            self.over = True  # such a proxy hears no answer, so there is nothing to decide
            return []
        kind = message.WhichOneof("request")
        if kind == "response_body":  # a streamed answer has hundreds
            return self._response.body(message, now)
        if kind is None:
            raise ProtocolViolation("a message without request or response")
        try:
            return HANDLERS[kind](self, message, now)
        except EppError as error:
            self._forget_request()
            return self.refuse(error)

    def resumed(self, error: EppError | None, now: float) -> list[bytes]:
        """What ``resume`` was told; returns the answers to send, in order.

        Does nothing unless the request waits, or is to end and has not begun to be answered.
        """
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            if error is None or self.over or not self._response.evict(error.code, now):
                return []
            return self.refuse(error)
        self._body.release()
        if error is not None:  # not raised: its traceback would keep this frame, and the frame would keep it
            self._director.refused(waiting.arrival, error)
            return self.refuse(error)
        try:
            return self._answers(self._place(waiting.arrival), waiting.asked, waiting.asked.forward)
        except EppError as refusal:
            return self.refuse(refusal)

    def refuse(self, error: EppError) -> list[bytes]:
        """The answer that ends the request with ``error``, in the form that its client reads."""
        self.over = True
        return [messages.immediate(error, written(error, self._settings.error_format, self._client))]

    def closed(self, now: float) -> None:
        """The stream has ended, however it did. Does nothing the second time."""
        self.over = True
        self._resume = unheard  # its owner, which owns this, is not kept alive by it
        self._forget_request()
        self._response.closed(now)

    # The request.

    def _request_headers(self, message: ProcessingRequest, now: float) -> list[bytes]:
        if self._request is not Side.UNSEEN or self.responding:
            raise ProtocolViolation("request headers after the start of the stream")
        self._began = now
        if message.HasField("protocol_config"):
            self._request_mode = message.protocol_config.request_body_mode
            self._response.mode = message.protocol_config.response_body_mode
            self._response.shown = self._response.mode != ProcessingMode.NONE
        self._head = messages.request_head(message.request_headers, self._subset(message), now)
        self._client = client_of(self._head)
        if message.request_headers.end_of_stream:
            self._request = Side.ENDED
            return self._decide(b"", Asked("request_headers"))
        if self._request_mode == ProcessingMode.NONE:
            self._request = Side.TRAILERS
            return self._decide(b"", Asked("request_headers"))
        self._request = Side.OPEN
        if self._request_mode in BUFFERED:
            if (
                self._settings.may_ask
                and self._response.mode == ProcessingMode.NONE
                and (first(self._head, MODEL_REWRITE) or self._director.tells(self._head))
            ):
                return [messages.ASK_FOR_RESPONSE_HEADERS]
            return [messages.CONTINUE_REQUEST_HEADERS]
        if self._request_mode == FULL_DUPLEX:
            return []
        raise ProtocolViolation(
            f"request_body_mode {MODE_NAMES.get(self._request_mode, self._request_mode)} would let the request leave"
            " before its endpoint is chosen; use FULL_DUPLEX_STREAMED or BUFFERED"
        )

    def _request_body(self, message: ProcessingRequest, now: float) -> list[bytes]:  # noqa: ARG002
        if self._repeats_the_end(message):
            return []
        self._expect_request(Side.OPEN, message)
        part = message.request_body.body
        try:
            self._body.add(part)
        except EppError as error:
            self._director.refused_unread(self._head, error)
            raise
        self._narrow(message)
        ends = message.request_body.end_of_stream
        if self._request_mode in BUFFERED:
            self._request = Side.ENDED if ends else Side.TRAILERS
            return self._decide(part, Asked("request_body"))
        if not ends:
            return []
        self._request = Side.ENDED
        return self._decide_and_forward()

    def _request_trailers(self, message: ProcessingRequest, now: float) -> list[bytes]:  # noqa: ARG002
        if self._request is Side.TRAILERS:
            self._request = Side.ENDED
            if self._waiting is not None:
                self._waiting.asked.after.append(messages.CONTINUE_REQUEST_TRAILERS)
                return []
            return [messages.CONTINUE_REQUEST_TRAILERS]
        self._expect_request(Side.OPEN, message)
        self._request = Side.ENDED
        if self._request_mode in BUFFERED:
            return self._decide(b"", Asked("request_trailers"))
        return self._decide_and_forward(messages.CONTINUE_REQUEST_TRAILERS)

    def _repeats_the_end(self, message: ProcessingRequest) -> bool:
        """Some proxies send the last piece of a large full-duplex body twice (Envoy 1.35 to 1.37, its issue 46237)."""
        ended = self._request is Side.ENDED and self._request_mode == FULL_DUPLEX and not self.responding
        return ended and message.request_body.end_of_stream

    def _expect_request(self, side: Side, message: ProcessingRequest) -> None:
        if self._request is not side or self.responding:
            kind = message.WhichOneof("request")
            raise ProtocolViolation(f"{kind} out of order: the request is {self._request.value}")

    def _narrow(self, message: ProcessingRequest) -> None:
        subset = self._subset(message)
        if subset is not None and self._head is not None:
            self._head = RequestHead(self._head.headers, subset, self._head.received_s)

    def _subset(self, message: ProcessingRequest) -> frozenset[str] | None:
        if self._settings.any_subset and message.HasField("metadata_context"):
            return messages.subset_in(message.metadata_context)
        return None

    def _decide_and_forward(self, *after: bytes) -> list[bytes]:
        begun, body = self._body.begun, self._body.take()
        forward = body if begun else None
        return self._decide(body, Asked("request_headers", forward, not after, list(after)))

    def _decide(self, body: bytes, asked: Asked) -> list[bytes]:
        head = self._head
        assert head is not None  # noqa: S101 - every state that decides comes after the headers
        self._head = None
        self._body.take()
        if not body:  # an empty one is a request without, however the proxy says so
            decided = self._director.decide_bodiless(head)
            if isinstance(decided, ModelAnswer):
                self.over = True
                return [messages.answered(decided)]
            return self._answers(decided, asked)
        arrival = self._director.read(head, body)
        if arrival.body is not None and asked.forward is not None:
            asked.forward = arrival.body
        wait = self._director.admit(arrival, body, self._resume)
        if wait is None:
            return self._answers(self._place(arrival), asked, arrival.body or body)
        self._waiting = _Waiting(wait, arrival, asked)
        # The proxy's patience with an answer has an end, except in full duplex.
        return [messages.more_time(wait.patience_s())] if self._request_mode in BUFFERED else []

    def _place(self, arrival: Arrival) -> Decision:
        seen = self._response.mode != ProcessingMode.NONE
        # Where the answer's beginning is not seen, it may only be ended if it comes as a whole.
        ends = seen or not arrival.request.streaming
        return self._director.place(arrival, self._resume if ends else None, seen=seen)

    def _answers(self, decision: Decision, asked: Asked, body: bytes | None = None) -> list[bytes]:
        self._body.release()
        if self._settings.ask_kvengine and body is not None and self._response.mode != ProcessingMode.NONE:
            decision = asked.with_question(decision, body)
        self._response.expect(decision, self._began)
        return asked.answers(decision, self._settings)

    def _forget_request(self) -> None:
        """Let go of the prompt: a response may take minutes."""
        self._head = None
        self._body.release()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.wait.cancel()
            self._director.refused(waiting.arrival, ClientGone("the client left while its request waited"))

    # The response.

    def _response_headers(self, message: ProcessingRequest, now: float) -> list[bytes]:
        # The request may be unfinished, or unseen: a proxy answers some requests by itself.
        self._forget_request()
        return self._response.headers(message, now)

    def _response_trailers(self, message: ProcessingRequest, now: float) -> list[bytes]:
        return self._response.trailers(message, now)


HANDLERS = {
    "request_headers": Exchange._request_headers,
    "request_body": Exchange._request_body,
    "request_trailers": Exchange._request_trailers,
    "response_headers": Exchange._response_headers,
    "response_trailers": Exchange._response_trailers,
}
