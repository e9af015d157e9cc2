"""Answers that are joined from templates equal the messages that a protobuf builder makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.decision import Decision, RequestLabels
from epp.errors import BadRequest, Saturated
from epp.extproc import messages, templates
from epp.extproc.messages import CHUNK_BYTES
from epp.extproc.refusal import Refusal
from epp.extproc.templates import Body, Place
from epp.pb.ext_proc_pb2 import ProcessingRequest, ProcessingResponse
from epp.served.listing import ModelAnswer
from tests.epp.doubles import candidate, destination_of, forwarded, read, response_headers

EDGES = [0, 1, 2, 3, 127, 128, 129, 16_383, 16_384, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES]


@pytest.mark.parametrize("side", ["request_body", "response_body"])
@pytest.mark.parametrize("ends", [True, False])
@given(size=st.integers(0, 3 * CHUNK_BYTES) | st.sampled_from(EDGES), fill=st.sampled_from([b"\xff", b"\0", b"x"]))
def test_a_body_of_any_size_is_cut_and_marked(side: Body, ends: bool, size: int, fill: bytes) -> None:
    body = fill * size
    pieces = forwarded(read(messages.chunks(side, body, end_of_stream=ends)), side)
    assert b"".join(piece for piece, _ in pieces) == body
    assert [last for _, last in pieces] == [False] * (len(pieces) - 1) + [ends]
    assert len(pieces) == max(1, -(-size // CHUNK_BYTES))


@given(
    st.sampled_from(["request_headers", "request_body", "request_trailers"]),
    st.integers(1, 10**12),
    st.lists(st.integers(0, 255), min_size=1, max_size=3),
)
def test_a_decision_is_the_same_message_by_joining_and_by_building(place: Place, pick: int, slots: list[int]) -> None:
    decision = Decision(pick_id=pick, chosen=tuple(candidate(s) for s in slots), labels=RequestLabels())
    joined = ProcessingResponse.FromString(messages.decided(place, decision, clear_route_cache=True, emit_scores=False))
    assert joined == templates.decision_message(place, decision.destination, str(pick), clear_route_cache=True)
    assert destination_of(joined) == ",".join(f"10.0.0.{s}:8000" for s in slots)
    assert joined.dynamic_metadata["tierwise"]["pick"] == str(pick)


@pytest.mark.parametrize("digits", range(1, 21))
def test_a_pick_goes_into_its_place_whatever_the_lengths_around_it(digits: int) -> None:
    for length in range(1, 260):
        cut = templates.pick_template("request_body", "9" * length, digits, False)
        joined = ProcessingResponse.FromString(cut.before + b"7" * digits + cut.after)
        assert joined == templates.decision_message("request_body", "9" * length, "7" * digits, False)


def test_a_refusal_carries_status_body_and_reason() -> None:
    (answer,) = read([messages.immediate(Saturated("full"), Refusal(b"full", "text/x"))])
    refusal = answer.immediate_response
    assert (refusal.status.code, refusal.body) == (429, b"full")
    headers = {option.header.key: option.header.raw_value for option in refusal.headers.set_headers}
    assert headers == {
        "x-llm-d-request-dropped-reason": b"rejected-saturated",
        "content-type": b"text/x",
        "retry-after": b"1",
    }
    assert refusal.grpc_status.status == 8, "RESOURCE_EXHAUSTED"
    (answer,) = read([messages.immediate(BadRequest("no"), Refusal(b"no"))])
    assert not answer.immediate_response.HasField("headers")


def test_the_picker_s_own_answer_may_be_read_by_a_browser_s_scripts() -> None:
    """vLLM allows it by default: a chat page in a browser begins with the list of models."""
    (answer,) = read([messages.answered(ModelAnswer(200, b"{}"))])
    headers = {o.header.key: o.header.raw_value for o in answer.immediate_response.headers.set_headers}
    assert headers == {"content-type": b"application/json", "access-control-allow-origin": b"*"}


@pytest.mark.parametrize(("kind", "readable"), [("application/json", True), ("application/grpc", False), ("", False)])
def test_a_refusal_in_json_may_be_read_by_a_browser_s_scripts(kind: str, readable: bool) -> None:
    (answer,) = read([messages.immediate(BadRequest("no"), Refusal(b"{}", kind))])
    headers = {o.header.key: o.header.raw_value for o in answer.immediate_response.headers.set_headers}
    assert headers.get("access-control-allow-origin") == (b"*" if readable else None)


def test_header_values_are_read_from_either_field_and_the_last_of_repeated_ones_counts() -> None:
    message = ProcessingRequest()
    headers = message.request_headers.headers.headers
    headers.add(key="a", value="old proxies")
    headers.add(key="b", raw_value=b"first")
    headers.add(key="b", raw_value="lást".encode())
    headers.add(key="c", raw_value=b"\xff")
    assert messages.request_head(message.request_headers, None).headers == {
        "a": "old proxies",
        "b": "lást",
        "c": "\ufffd",
    }


def test_without_metadata_nothing_is_said_of_subset_or_server() -> None:
    message = response_headers()
    assert messages.subset_in(message.metadata_context) is None
    assert messages.served_in(message.metadata_context) is None
    message.metadata_context.filter_metadata["envoy.lb"].update({"other": "x"})
    message.metadata_context.filter_metadata["envoy.lb.subset_hint"].update({"other": "x"})
    assert messages.subset_in(message.metadata_context) is None
    assert messages.served_in(message.metadata_context) is None
