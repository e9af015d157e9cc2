"""The table of an exchange's states is complete, agrees with a naive model, and is drawn on its page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.extproc.transitions import EVENTS, TRANSITIONS, ProtocolViolation, State, event_of, mermaid
from epp.pb.ext_proc_pb2 import ProcessingRequest
from tests.epp.doubles import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    STREAMED,
    World,
    completion,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
)
from tests.epp.extproc.test_exchange_properties import messages

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"
BUFFERED_PARTIAL = 3
BODIES = (FULL_DUPLEX, BUFFERED, BUFFERED_PARTIAL, NONE, STREAMED, 99)

SAMPLES = [
    *(request_headers(modes=(mode, FULL_DUPLEX), end_of_stream=ends) for mode in BODIES for ends in (False, True)),
    *(request_body(completion(), end_of_stream=ends) for ends in (False, True)),
    request_trailers(),
    *(response_headers(end_of_stream=ends) for ends in (False, True)),
    *(response_body(b"x", end_of_stream=ends) for ends in (False, True)),
    response_trailers(),
]
"""At least one message of every event."""


def event(message: ProcessingRequest) -> str:
    kind = message.WhichOneof("request")
    assert kind is not None
    return event_of(message, kind)


def ways() -> dict[State, list[ProcessingRequest]]:
    """Return messages that lead to each state, as few as possible."""
    found: dict[State, list[ProcessingRequest]] = {State.START: []}
    for state in (queue := [State.START]):
        for message in SAMPLES:
            _, then = TRANSITIONS.get((state, event(message)), (None, state))
            if then not in found:
                found[then] = [*found[state], message]
                queue.append(then)
    return found


def exchange_after(sent: Sequence[ProcessingRequest]) -> Exchange:
    exchange = Exchange(World().director, ExchangeSettings())
    for message in sent:
        exchange.received(message, 0)
    return exchange


def test_the_samples_are_of_every_event() -> None:
    assert {event(message) for message in SAMPLES} == set(EVENTS)
    assert {event for _, event in TRANSITIONS} <= set(EVENTS)


def test_every_state_can_be_reached() -> None:
    assert ways().keys() == set(State)


@pytest.mark.parametrize("state", State)
def test_every_event_in_every_state_is_in_the_table_or_refused_by_name(state: State) -> None:
    way = ways()[state]
    for message in SAMPLES:
        exchange = exchange_after(way)
        if (state, event(message)) in TRANSITIONS:
            exchange.received(message, 0)
        else:
            named = str(message.WhichOneof("request")).replace("_", "[_ ]")
            with pytest.raises(ProtocolViolation, match=f"{named}|request_body_mode"):
                exchange.received(message, 0)
        exchange.closed(1)


class Naive:
    """The rules of an exchange as flags, one for each direction, in the words of the protocol."""

    def __init__(self) -> None:
        self.request = self.response = "unseen"
        self.mode = FULL_DUPLEX

    def allows(self, message: ProcessingRequest) -> bool:
        """Take ``message``, and return whether it may come now."""
        kind = str(message.WhichOneof("request"))
        if kind.startswith("response"):
            return self._response(kind, message)
        if kind == "request_trailers" and self.request == "trailers":
            self.request = "ended"
            return True
        if self.response != "unseen":
            return False
        if kind == "request_headers":
            return self._headers(message)
        ends = kind == "request_trailers" or message.request_body.end_of_stream
        if self.request == "ended" and self.mode == FULL_DUPLEX:
            return kind == "request_body" and ends
        if self.request != "open":
            return False
        if ends:
            self.request = "ended"
        elif self.mode != FULL_DUPLEX:
            self.request = "trailers"
        return True

    def _headers(self, message: ProcessingRequest) -> bool:
        if self.request != "unseen":
            return False
        if message.HasField("protocol_config"):
            self.mode = message.protocol_config.request_body_mode
        if message.request_headers.end_of_stream:
            self.request = "ended"
        elif self.mode == NONE:
            self.request = "trailers"
        else:
            self.request = "open"
        return self.request != "open" or self.mode in (FULL_DUPLEX, BUFFERED, BUFFERED_PARTIAL)

    def _response(self, kind: str, message: ProcessingRequest) -> bool:
        if self.response != ("unseen" if kind == "response_headers" else "open"):
            return False
        ends = kind == "response_trailers" or getattr(message, kind).end_of_stream
        self.response = "ended" if ends else "open"
        return True


@given(st.lists(messages, max_size=12))
def test_whatever_is_sent_the_table_allows_what_a_naive_model_allows(sent: list[ProcessingRequest]) -> None:
    exchange, naive = Exchange(World().director, ExchangeSettings()), Naive()
    for message in sent:
        allowed = naive.allows(message)
        try:
            exchange.received(message, 0)
        except ProtocolViolation:
            assert not allowed
            break
        assert allowed
        if exchange.over:  # refused, or answered by the picker itself
            break
        assert exchange.responding == (naive.response != "unseen")
    exchange.closed(1)


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text()
    diagram = "```mermaid\n" + "\n".join(mermaid()) + "\n```\n"
    assert diagram in text, f"{PAGE.name} shows another table; its diagram is to be\n{diagram}"
    for state in State:
        assert f"| {state.name} | {state.meaning} |\n" in text
