"""The states of an exchange: which of the proxy's messages may come in each, what answers it, and what follows.

Rules for the maintainer:

1. What decides whether a message may come is in ``TRANSITIONS``, and nowhere else. A pair of a state and an event that
   is not there is refused; no handler checks what came before it.
2. The state changes before the handler runs, so that a handler sees the state to which its message leads.
3. A handler answers a message, and never sets the state. Two messages of which it must know different things are two
   events; two situations in which it must do different things are two states.
4. The body mode of the request is part of the state, and the first message brings it. The body mode of the response is
   not: it changes what is answered, never what may come.
5. ``mermaid`` draws ``docs/architecture.md``'s diagram; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TypeAlias

from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.pb.processing_mode_pb2 import ProcessingMode

Mode: TypeAlias = ProcessingMode.BodySendMode
FULL_DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED
NONE = ProcessingMode.NONE
BUFFERED = (ProcessingMode.BUFFERED, ProcessingMode.BUFFERED_PARTIAL)


class ProtocolViolation(Exception):
    """The proxy sent what no order of messages allows, or asks for a mode that cannot work."""


class State(Enum):
    """How far an exchange has come: in words, and for each direction alone."""

    START = "nothing was seen", "unseen", "unseen"
    COLLECTING = "the request's body arrives piece by piece", "open", "unseen"
    BUFFERING = "the request's body comes in one message", "open", "unseen"
    TRAILERS = "the request is placed, or waits; its trailers may follow", "trailers", "unseen"
    FORWARDED = "a full-duplex request is complete; its last piece may come again", "ended", "unseen"
    COMPLETE = "any other request is complete", "ended", "unseen"
    RESPONDING = "the response has begun", "closed by the response", "open"
    RESPONDING_EARLY = "the response has begun; the request's trailers may follow", "trailers", "open"
    ENDED = "the response is complete", "closed by the response", "ended"
    ENDED_EARLY = "the response is complete; the request's trailers may follow", "trailers", "ended"

    def __init__(self, meaning: str, request: str, response: str) -> None:
        self.meaning = meaning
        self.request = request
        self.response = response


# Events: a message, with its end of stream or its body mode where these matter. Strings hash faster than an Enum.
FULL_DUPLEX_HEADERS = "request_headers, FULL_DUPLEX_STREAMED"
BUFFERED_HEADERS = "request_headers, BUFFERED"
UNREAD_HEADERS = "request_headers, NONE"
OTHER_HEADERS = "request_headers, another mode"
FULL_DUPLEX_HEADERS_ALONE = "request_headers, FULL_DUPLEX_STREAMED, end of stream"
HEADERS_ALONE = "request_headers, end of stream"
BODY = "request_body"
LAST_BODY = "request_body, end of stream"
REQUEST_TRAILERS = "request_trailers"
RESPONSE_HEADERS = "response_headers"
RESPONSE_HEADERS_ALONE = "response_headers, end of stream"
RESPONSE_BODY = "response_body"
LAST_RESPONSE_BODY = "response_body, end of stream"
RESPONSE_TRAILERS = "response_trailers"

EVENTS = (
    FULL_DUPLEX_HEADERS, BUFFERED_HEADERS, UNREAD_HEADERS, OTHER_HEADERS, FULL_DUPLEX_HEADERS_ALONE, HEADERS_ALONE,
    BODY, LAST_BODY, REQUEST_TRAILERS, RESPONSE_HEADERS, RESPONSE_HEADERS_ALONE, RESPONSE_BODY, LAST_RESPONSE_BODY,
    RESPONSE_TRAILERS,
)  # fmt: skip

TRANSITIONS: Mapping[tuple[State, str], tuple[str, State]] = {
    (State.START, FULL_DUPLEX_HEADERS): ("collect_body", State.COLLECTING),
    (State.START, BUFFERED_HEADERS): ("await_body", State.BUFFERING),
    (State.START, UNREAD_HEADERS): ("decide_by_headers", State.TRAILERS),
    (State.START, FULL_DUPLEX_HEADERS_ALONE): ("decide_by_headers", State.FORWARDED),
    (State.START, HEADERS_ALONE): ("decide_by_headers", State.COMPLETE),
    (State.COLLECTING, BODY): ("keep_piece", State.COLLECTING),
    (State.COLLECTING, LAST_BODY): ("decide_and_forward", State.FORWARDED),
    (State.COLLECTING, REQUEST_TRAILERS): ("decide_and_forward_at_trailers", State.FORWARDED),
    (State.BUFFERING, BODY): ("decide_by_body", State.TRAILERS),
    (State.BUFFERING, LAST_BODY): ("decide_by_body", State.COMPLETE),
    (State.BUFFERING, REQUEST_TRAILERS): ("decide_without_body", State.COMPLETE),
    (State.TRAILERS, REQUEST_TRAILERS): ("pass_trailers", State.COMPLETE),
    # Some proxies send the last piece of a large full-duplex body twice (Envoy 1.35 to 1.37, its issue 46237).
    (State.FORWARDED, LAST_BODY): ("ignore", State.FORWARDED),
    # The response may begin at any time: a proxy answers some requests by itself, and engines need not read to the end.
    (State.START, RESPONSE_HEADERS): ("begin_response", State.RESPONDING),
    (State.START, RESPONSE_HEADERS_ALONE): ("whole_response", State.ENDED),
    (State.COLLECTING, RESPONSE_HEADERS): ("begin_response", State.RESPONDING),
    (State.COLLECTING, RESPONSE_HEADERS_ALONE): ("whole_response", State.ENDED),
    (State.BUFFERING, RESPONSE_HEADERS): ("begin_response", State.RESPONDING),
    (State.BUFFERING, RESPONSE_HEADERS_ALONE): ("whole_response", State.ENDED),
    (State.TRAILERS, RESPONSE_HEADERS): ("begin_response", State.RESPONDING_EARLY),
    (State.TRAILERS, RESPONSE_HEADERS_ALONE): ("whole_response", State.ENDED_EARLY),
    (State.FORWARDED, RESPONSE_HEADERS): ("begin_response", State.RESPONDING),
    (State.FORWARDED, RESPONSE_HEADERS_ALONE): ("whole_response", State.ENDED),
    (State.COMPLETE, RESPONSE_HEADERS): ("begin_response", State.RESPONDING),
    (State.COMPLETE, RESPONSE_HEADERS_ALONE): ("whole_response", State.ENDED),
    (State.RESPONDING, RESPONSE_BODY): ("response_piece", State.RESPONDING),
    (State.RESPONDING, LAST_RESPONSE_BODY): ("last_response_piece", State.ENDED),
    (State.RESPONDING, RESPONSE_TRAILERS): ("response_trailers", State.ENDED),
    (State.RESPONDING_EARLY, RESPONSE_BODY): ("response_piece", State.RESPONDING_EARLY),
    (State.RESPONDING_EARLY, LAST_RESPONSE_BODY): ("last_response_piece", State.ENDED_EARLY),
    (State.RESPONDING_EARLY, RESPONSE_TRAILERS): ("response_trailers", State.ENDED_EARLY),
    (State.RESPONDING_EARLY, REQUEST_TRAILERS): ("pass_trailers", State.RESPONDING),
    (State.ENDED_EARLY, REQUEST_TRAILERS): ("pass_trailers", State.ENDED),
}
"""The handler of an event in a state (a method of ``Exchange``, less its underscore), and the state that follows."""


def event_of(message: ProcessingRequest, kind: str) -> str:
    """Return the event that ``message``, of the given ``kind``, is."""
    if kind == "response_body":  # a streamed response has hundreds
        return LAST_RESPONSE_BODY if message.response_body.end_of_stream else RESPONSE_BODY
    if kind == "request_body":
        return LAST_BODY if message.request_body.end_of_stream else BODY
    if kind == "response_headers":
        return RESPONSE_HEADERS_ALONE if message.response_headers.end_of_stream else RESPONSE_HEADERS
    if kind != "request_headers":
        return kind
    mode = request_mode(message)
    if message.request_headers.end_of_stream:
        return FULL_DUPLEX_HEADERS_ALONE if mode == FULL_DUPLEX else HEADERS_ALONE
    if mode == FULL_DUPLEX:
        return FULL_DUPLEX_HEADERS
    if mode in BUFFERED:
        return BUFFERED_HEADERS
    return UNREAD_HEADERS if mode == NONE else OTHER_HEADERS


def request_mode(message: ProcessingRequest) -> Mode:
    """Return how the proxy sends the request's body, as its first message says: full duplex unless it names a mode."""
    return message.protocol_config.request_body_mode if message.HasField("protocol_config") else FULL_DUPLEX


def violation(state: State, event: str, message: ProcessingRequest) -> ProtocolViolation:
    """Return the refusal of ``message``, which is an ``event`` that ``state`` does not allow."""
    kind = event.partition(",")[0]
    if kind == "request_headers":
        if state is not State.START:
            return ProtocolViolation("request headers after the start of the stream")
        mode = request_mode(message)
        name = ProcessingMode.BodySendMode.Name(mode) if mode in ProcessingMode.BodySendMode.values() else mode
        return ProtocolViolation(
            f"request_body_mode {name} would let the request leave before its endpoint is chosen; use "
            "FULL_DUPLEX_STREAMED or BUFFERED"
        )
    if kind == "response_headers":
        return ProtocolViolation("response headers twice")
    side, _, _ = kind.partition("_")
    word = state.request if side == "request" else state.response
    return ProtocolViolation(f"{kind} out of order: the {side} is {word}")


def mermaid() -> Iterator[str]:
    """Return the lines of a state diagram of ``TRANSITIONS``, in the language of Mermaid."""
    yield "stateDiagram-v2"
    yield "    [*] --> START"
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, event), (_, then) in TRANSITIONS.items():
        arrows.setdefault((state, then), []).append(event)
    for (state, then), events in arrows.items():
        yield f"    {state.name} --> {then.name}: {'<br>'.join(events)}"
    for state in State:
        if not any(state is left for left, _ in TRANSITIONS):
            yield f"    {state.name} --> [*]"
