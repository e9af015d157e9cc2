"""Ext-proc messages: what is read from the proxy's, and the picker's own as bytes.

Answers that are the same every time are serialised once; those that differ in one place are joined from templates
(``epp.extproc.templates``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from epp.decision import Decision, RequestHead
from epp.errors import DROPPED_REASON_HEADER, EppError
from epp.extproc.refusal import ANY_ORIGIN, JSON, Refusal
from epp.extproc.templates import (
    Body,
    Place,
    chunk_template,
    decision_message,
    pick_template,
    set_header,
    traceparent_template,
)
from epp.pb.core_pb2 import Metadata
from epp.pb.ext_proc_pb2 import (
    BodyResponse,
    HeadersResponse,
    HttpHeaders,
    HttpTrailers,
    ProcessingResponse,
    TrailersResponse,
)
from epp.pb.processing_mode_pb2 import ProcessingMode
from epp.picking.usage_reporter import Report
from epp.served.listing import ModelAnswer

SCORES = "x-gateway-destination-endpoint-scores"
SUBSET = ("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset")
SERVED = ("envoy.lb", "x-gateway-destination-endpoint-served")

CHUNK_BYTES = 62_000
"""The most body bytes in one answer. Source: the Go picker's; proxies' buffers are sized for it."""

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
"""Lets the request's headers pass, and has the proxy send the response's headers, too."""
CONTINUE_REQUEST_TRAILERS = ProcessingResponse(request_trailers=TrailersResponse()).SerializeToString()
CONTINUE_RESPONSE_HEADERS = ProcessingResponse(response_headers=HeadersResponse()).SerializeToString()
CONTINUE_RESPONSE_BODY = ProcessingResponse(response_body=BodyResponse()).SerializeToString()
CONTINUE_RESPONSE_TRAILERS = ProcessingResponse(response_trailers=TrailersResponse()).SerializeToString()


# Reading the proxy's messages.


def request_head(headers: HttpHeaders, subset: frozenset[str] | None, received_s: float = 0.0) -> RequestHead:
    """Return the head of a request, from its first message."""
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
    """Return the endpoints that the proxy allows, written as a list or as a text with commas.

    None if the proxy names no subset; a value of another kind allows no endpoint.
    """
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
    """Return the endpoint that answered; None if the proxy does not name it."""
    namespace, key = SERVED
    if namespace not in metadata.filter_metadata:
        return None
    fields = metadata.filter_metadata[namespace].fields
    return fields[key].string_value or None if key in fields else None


# Writing the picker's messages.


def decided(place: Place, decision: Decision, *, clear_route_cache: bool, emit_scores: bool) -> bytes:
    """Return the answer that sends the request to its destination.

    The destination goes into a header and into the metadata, and both always agree; the metadata also carry the pick's
    id. After trailers no header can be set any more, so there only the metadata have the destination.
    """
    pick = str(decision.pick_id).encode()
    if decision.body is None and not emit_scores:
        cut = pick_template(place, decision.destination, len(pick), clear_route_cache)
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


def chunks(side: Body, body: bytes, *, end_of_stream: bool) -> list[bytes]:
    """Return the answers that forward ``body``, each at most CHUNK_BYTES of it; the last may end the stream."""
    if len(body) <= CHUNK_BYTES:
        cut = chunk_template(side, len(body), end_of_stream)
        return [cut.before + body + cut.after]
    last = (len(body) - 1) // CHUNK_BYTES * CHUNK_BYTES
    full = chunk_template(side, CHUNK_BYTES, False)
    pieces = [full.before + body[at : at + CHUNK_BYTES] + full.after for at in range(0, last, CHUNK_BYTES)]
    return pieces + chunks(side, body[last:], end_of_stream=end_of_stream)


def response_headers(
    set_headers: Mapping[str, str], *, unknown_length: bool = False, asks_for: ProcessingMode | None = None
) -> bytes:
    """Return the answer that lets response headers pass and adds ``set_headers``.

    ``unknown_length`` removes the content length, since the body may change; ``asks_for`` has the proxy send more of
    the response than it would.
    """
    answer = ProcessingResponse()
    answer.response_headers.SetInParent()  # or there would be no answer if nothing changes
    mutation = answer.response_headers.response.header_mutation
    for name, value in set_headers.items():
        set_header(mutation, name, value)
    if unknown_length:
        mutation.remove_headers.append("content-length")
    if asks_for is not None:
        answer.mode_override.CopyFrom(asks_for)
    return answer.SerializeToString()


def replaced_body(body: bytes) -> bytes:
    """Return the answer that sends ``body`` on instead of the piece that was received."""
    answer = ProcessingResponse()
    mutation = answer.response_body.response.body_mutation
    if body:
        mutation.body = body
    else:
        mutation.clear_body = True
    return answer.SerializeToString()


def reported(reports: Iterable[Report]) -> bytes:
    """Return dynamic metadata to append to any answer's bytes: two serialised messages in a row are one, merged."""
    answer = ProcessingResponse()
    for report in reports:
        namespace = answer.dynamic_metadata.fields[report.namespace].struct_value
        namespace.fields[report.name].number_value = report.value
    return answer.SerializeToString()


def with_traceparent(place: Place, value: str) -> bytes:
    """Return the bytes that set that header on the request when appended to a ``decided`` answer of ``place``.

    ``place`` is not trailers. Serialised messages in a row are one message, whose parts are merged.
    """
    cut = traceparent_template(place)
    return cut.before + value.encode() + cut.after


def immediate(error: EppError, written: Refusal) -> bytes:
    """Return the answer that ends the request with the status of ``error``, which is ``written`` for its client.

    The proxy uses the gRPC status if the client speaks gRPC, and leaves it out otherwise.
    """
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
    if written.content_type == JSON:
        set_header(refusal.headers, *ANY_ORIGIN)
    if error.retry_after_s is not None:
        set_header(refusal.headers, "retry-after", str(error.retry_after_s))
    return answer.SerializeToString()


def answered(answer: ModelAnswer) -> bytes:
    """Return the answer that ends the request with a response of the picker's own.

    Scripts of any web page may read it, as vLLM allows by default: a chat page begins with the list of models.
    """
    message = ProcessingResponse()
    message.immediate_response.status.code = answer.status  # type: ignore[assignment]
    message.immediate_response.body = answer.body
    set_header(message.immediate_response.headers, "content-type", JSON)
    set_header(message.immediate_response.headers, *ANY_ORIGIN)
    return message.SerializeToString()


@lru_cache(maxsize=64)
def more_time(seconds: float) -> bytes:
    """Return a request to the proxy to wait longer for the answer to its last message.

    The proxy allows one for each message, up to a limit of its own.
    """
    answer = ProcessingResponse()
    answer.override_message_timeout.FromMilliseconds(round(seconds * 1000))
    return answer.SerializeToString()


def totals(decision: Decision) -> Mapping[str, float]:
    """Return the weighted score of every candidate that was scored, by address."""
    sums = dict.fromkeys((c.address for c in decision.candidates), 0.0)
    for weight, column in decision.scores.values():
        for candidate, score in zip(decision.candidates, column, strict=True):
            sums[candidate.address] += weight * score
    return sums
