"""Ext-proc messages: what is read from the proxy's, and the picker's as bytes.

Answers that are the same every time are serialised once. Those that differ in one place (the pick's id, a piece of a
body) are serialised once around a filler of the same size, cut there, and joined with the real bytes: a token of a
streamed answer costs a look-up and a copy. (Changing one message object again and again would be as fast, but its
memory only grows.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from epp.decision import Decision, RequestHead
from epp.errors import DROPPED_REASON_HEADER, EppError
from epp.extproc.refusal import JSON, Refusal
from epp.pb.core_pb2 import HeaderValueOption, Metadata
from epp.pb.ext_proc_pb2 import (
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HttpHeaders,
    HttpTrailers,
    ProcessingResponse,
    TrailersResponse,
)
from epp.pb.processing_mode_pb2 import ProcessingMode
from epp.picking.usage_reporter import Report
from epp.served.listing import ModelAnswer
from epp.tracing.context import HEADER_BYTES, TRACEPARENT

DESTINATION = "x-gateway-destination-endpoint"
SCORES = "x-gateway-destination-endpoint-scores"
SUBSET = ("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset")
SERVED = ("envoy.lb", "x-gateway-destination-endpoint-served")

CHUNK_BYTES = 62_000
"""The most body bytes in one answer. Source: the Go picker's; proxies' buffers are sized for it."""

Place: TypeAlias = Literal["request_headers", "request_body", "request_trailers"]
"""Which of the proxy's messages a decision answers."""
Side: TypeAlias = Literal["request_body", "response_body"]

HEADERS_OF_RESPONSE = ProcessingMode(
    request_body_mode=ProcessingMode.BUFFERED,
    response_header_mode=ProcessingMode.SEND,
    response_trailer_mode=ProcessingMode.SEND,  # keeps the stream open until the response has ended
)
WHOLE_RESPONSE = ProcessingMode(
    request_body_mode=ProcessingMode.BUFFERED,
    response_header_mode=ProcessingMode.SEND,
    response_body_mode=ProcessingMode.FULL_DUPLEX_STREAMED,
    response_trailer_mode=ProcessingMode.SEND,
)

CONTINUE_REQUEST_HEADERS = ProcessingResponse(request_headers=HeadersResponse()).SerializeToString()
ASK_FOR_RESPONSE_HEADERS = ProcessingResponse(
    request_headers=HeadersResponse(), mode_override=HEADERS_OF_RESPONSE
).SerializeToString()
"""Let the request's headers pass, and have the response's sent, too."""
CONTINUE_REQUEST_TRAILERS = ProcessingResponse(request_trailers=TrailersResponse()).SerializeToString()
CONTINUE_RESPONSE_HEADERS = ProcessingResponse(response_headers=HeadersResponse()).SerializeToString()
CONTINUE_RESPONSE_BODY = ProcessingResponse(response_body=BodyResponse()).SerializeToString()
CONTINUE_RESPONSE_TRAILERS = ProcessingResponse(response_trailers=TrailersResponse()).SerializeToString()


# What the proxy says.


def request_head(headers: HttpHeaders, subset: frozenset[str] | None, received_s: float = 0.0) -> RequestHead:
    """The head of a request, from its first message."""
    return RequestHead(
        headers={h.key: (h.raw_value.decode("utf-8", "replace") or h.value) for h in headers.headers.headers},
        subset=subset,
        received_s=received_s,
    )


def header_values(message: HttpHeaders | HttpTrailers, wanted: frozenset[str]) -> dict[str, str]:
    """Return the values of the ``wanted`` headers, or trailers, of ``message``."""
    fields = message.trailers if isinstance(message, HttpTrailers) else message.headers
    return {h.key: (h.raw_value.decode("utf-8", "replace") or h.value) for h in fields.headers if h.key in wanted}


def subset_in(metadata: Metadata) -> frozenset[str] | None:
    """The endpoints that the proxy allows: a list, or a text with commas. None when it does not say; a value of
    another kind allows none."""
    namespace, key = SUBSET
    if namespace not in metadata.filter_metadata:
        return None
    fields = metadata.filter_metadata[namespace].fields
    if key not in fields:
        return None
    value = fields[key]
    texts = (
        [value.string_value] if value.HasField("string_value") else [v.string_value for v in value.list_value.values]
    )
    entries = (entry.strip() for text in texts for entry in text.split(","))
    return frozenset(entry for entry in entries if entry)


def served_in(metadata: Metadata) -> str | None:
    """The endpoint that answered, where the proxy says so."""
    namespace, key = SERVED
    if namespace not in metadata.filter_metadata:
        return None
    fields = metadata.filter_metadata[namespace].fields
    return fields[key].string_value or None if key in fields else None


# What the picker says.


class Around(NamedTuple):
    """A serialised message, cut where the part that differs belongs."""

    before: bytes
    after: bytes


def decided(place: Place, decision: Decision, *, clear_route_cache: bool, emit_scores: bool) -> bytes:
    """Send the request to its destination.

    The destination goes into a header and into the metadata, and both always agree; the metadata also carry the pick's
    id. After trailers no header can be set any more: there the metadata alone say it.
    """
    pick = str(decision.pick_id).encode()
    if decision.body is None and not emit_scores:
        cut = around_pick(place, decision.destination, len(pick), clear_route_cache)
        return cut.before + pick + cut.after
    answer = decision_message(place, decision.destination, pick.decode(), clear_route_cache)
    if emit_scores:
        scores = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields[SCORES].struct_value.fields
        for address, total in totals(decision).items():
            scores[address].number_value = total
    if decision.body is not None:
        common = answer.request_body.response if place == "request_body" else answer.request_headers.response
        set_header(common.header_mutation, "content-length", str(len(decision.body)))
        if place == "request_body":
            common.body_mutation.body = decision.body
    return answer.SerializeToString()


def chunks(side: Side, body: bytes, *, end_of_stream: bool) -> list[bytes]:
    """Forward ``body`` in pieces of at most CHUNK_BYTES, at least one; the last one says whether the stream ends."""
    if len(body) <= CHUNK_BYTES:
        cut = around_chunk(side, len(body), end_of_stream)
        return [cut.before + body + cut.after]
    last = (len(body) - 1) // CHUNK_BYTES * CHUNK_BYTES
    full = around_chunk(side, CHUNK_BYTES, False)
    pieces = [full.before + body[at : at + CHUNK_BYTES] + full.after for at in range(0, last, CHUNK_BYTES)]
    return pieces + chunks(side, body[last:], end_of_stream=end_of_stream)


def response_headers(
    set_headers: Mapping[str, str], *, unknown_length: bool = False, asks_for: ProcessingMode | None = None
) -> bytes:
    """Let response headers pass with ``set_headers``; without the length where the body's may change; and have more of
    the response sent than the proxy would."""
    answer = ProcessingResponse()
    answer.response_headers.SetInParent()  # or there is no answer where there is nothing to change
    mutation = answer.response_headers.response.header_mutation
    for name, value in set_headers.items():
        set_header(mutation, name, value)
    if unknown_length:
        mutation.remove_headers.append("content-length")
    if asks_for is not None:
        answer.mode_override.CopyFrom(asks_for)
    return answer.SerializeToString()


def replaced_body(body: bytes) -> bytes:
    """Send ``body`` on instead of the piece that was received."""
    answer = ProcessingResponse()
    mutation = answer.response_body.response.body_mutation
    if body:
        mutation.body = body
    else:
        mutation.clear_body = True
    return answer.SerializeToString()


def reported(reports: Iterable[Report]) -> bytes:
    """Dynamic metadata, to be put behind any answer's bytes (two serialised messages in a row are one, merged)."""
    answer = ProcessingResponse()
    for report in reports:
        namespace = answer.dynamic_metadata.fields[report.namespace].struct_value
        namespace.fields[report.name].number_value = report.value
    return answer.SerializeToString()


def with_traceparent(place: Place, value: str) -> bytes:
    """What to append to a ``decided`` answer of ``place``, which is not trailers, to set that header on the request.

    Serialised messages in a row are one message, whose parts are merged.
    """
    cut = around_traceparent(place)
    return cut.before + value.encode() + cut.after


def immediate(error: EppError, written: Refusal) -> bytes:
    """End the request with the status of ``error``, which is ``written`` for its client; the proxy takes the gRPC
    status where the client speaks gRPC, and leaves it out elsewhere."""
    answer = ProcessingResponse()
    refusal = answer.immediate_response
    refusal.status.code = error.http_status  # type: ignore[assignment]  # the enum names only the usual ones
    refusal.body = written.body
    refusal.grpc_status.status = error.grpc_status
    refusal.details = error.code
    if error.dropped_reason:
        set_header(refusal.headers, DROPPED_REASON_HEADER, error.dropped_reason)
    if written.content_type:
        set_header(refusal.headers, "content-type", written.content_type)
    if error.retry_after_s is not None:
        set_header(refusal.headers, "retry-after", str(error.retry_after_s))
    return answer.SerializeToString()


def answered(answer: ModelAnswer) -> bytes:
    """End the request with an answer of the picker's own.

    Scripts of any web page may read it, as vLLM allows by default: a chat page begins with the list of models.
    """
    message = ProcessingResponse()
    message.immediate_response.status.code = answer.status  # type: ignore[assignment]
    message.immediate_response.body = answer.body
    set_header(message.immediate_response.headers, "content-type", JSON)
    set_header(message.immediate_response.headers, "access-control-allow-origin", "*")
    return message.SerializeToString()


@lru_cache(maxsize=64)
def more_time(seconds: float) -> bytes:
    """Ask the proxy to wait for the answer to its last message: once a message, and within what it allows."""
    answer = ProcessingResponse()
    answer.override_message_timeout.FromMilliseconds(round(seconds * 1000))
    return answer.SerializeToString()


@lru_cache(maxsize=4096)
def around_pick(place: Place, destination: str, digits: int, clear_route_cache: bool) -> Around:
    """The answer for ``destination`` around a pick id of ``digits`` digits."""
    one, other = (
        decision_message(place, destination, digit * digits, clear_route_cache).SerializeToString(deterministic=True)
        for digit in "09"
    )
    # Two messages differ just where the pick stands. (To search for a filler would find a length byte like it, too.)
    at = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return Around(one[:at], one[at + digits :])


@lru_cache
def around_traceparent(place: Place) -> Around:
    """The answer that sets that header alone, around its value, which always has the same size."""
    answer = ProcessingResponse()
    filler = "f" * HEADER_BYTES
    set_header(getattr(answer, place).response.header_mutation, TRACEPARENT, filler)
    before, _, after = answer.SerializeToString().partition(filler.encode())
    return Around(before, after)


@lru_cache(maxsize=4096)
def around_chunk(side: Side, size: int, end_of_stream: bool) -> Around:
    """The answer around a piece of a body of ``size`` bytes."""
    # A byte that ends no varint, so that the filler cannot begin before its place.
    filler = b"\xff" * size
    answer = ProcessingResponse()
    piece = getattr(answer, side).response.body_mutation.streamed_response
    piece.body = filler
    piece.end_of_stream = end_of_stream
    piece.SetInParent()
    before, _, after = answer.SerializeToString().partition(filler) if size else (answer.SerializeToString(), b"", b"")
    return Around(before, after)


def decision_message(place: Place, destination: str, pick: str, clear_route_cache: bool) -> ProcessingResponse:
    """The answer that sends a request to ``destination``."""
    answer = ProcessingResponse()
    if place == "request_trailers":
        answer.request_trailers.SetInParent()
    else:
        common: CommonResponse = getattr(answer, place).response
        common.clear_route_cache = clear_route_cache
        set_header(common.header_mutation, DESTINATION, destination)
    fields = answer.dynamic_metadata.fields
    fields["envoy.lb"].struct_value.fields[DESTINATION].string_value = destination
    fields["tierwise"].struct_value.fields["pick"].string_value = pick
    return answer


def set_header(mutation: HeaderMutation, name: str, value: str) -> None:
    """Set a header, whatever the client sent under its name."""
    option = mutation.set_headers.add(append_action=HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD)
    option.header.key = name
    option.header.raw_value = value.encode()


def totals(decision: Decision) -> Mapping[str, float]:
    """Weighted score of every candidate that was scored, by address."""
    sums = dict.fromkeys((c.address for c in decision.candidates), 0.0)
    for weight, column in decision.scores.values():
        for candidate, score in zip(decision.candidates, column, strict=True):
            sums[candidate.address] += weight * score
    return sums
