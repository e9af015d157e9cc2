"""Serialised answers that differ in one place, each cut there once; an answer is then its two ends around the part.

A token of a streamed response costs a look-up and a copy. (Changing one message object again and again would be as
fast, but its memory only grows.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from epp.pb.core_pb2 import HeaderValueOption
from epp.pb.ext_proc_pb2 import CommonResponse, HeaderMutation, ProcessingResponse
from epp.tracing.context import HEADER_BYTES, TRACEPARENT

DESTINATION = "x-gateway-destination-endpoint"

Place: TypeAlias = Literal["request_headers", "request_body", "request_trailers"]
"""The message of the proxy that a decision answers."""
Body: TypeAlias = Literal["request_body", "response_body"]


class Template(NamedTuple):
    """A serialised message, cut where the part that differs belongs."""

    before: bytes
    after: bytes


@lru_cache(maxsize=4096)
def pick_template(place: Place, destination: str, digits: int, clear_route_cache: bool) -> Template:
    """Return the answer for ``destination`` around a pick id of ``digits`` digits."""
    one, other = (
        decision_message(place, destination, digit * digits, clear_route_cache).SerializeToString(deterministic=True)
        for digit in "09"
    )
    # The two messages differ only at the pick. (A search for a filler could find a length byte of the same value.)
    at = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return Template(one[:at], one[at + digits :])


@lru_cache
def traceparent_template(place: Place) -> Template:
    """Return the answer that only sets that header, around its value, which always has the same size."""
    answer = ProcessingResponse()
    filler = "f" * HEADER_BYTES
    set_header(getattr(answer, place).response.header_mutation, TRACEPARENT, filler)
    before, _, after = answer.SerializeToString().partition(filler.encode())
    return Template(before, after)


@lru_cache(maxsize=4096)
def chunk_template(side: Body, size: int, end_of_stream: bool) -> Template:
    """Return the answer that forwards a piece of a body of ``size`` bytes, around that piece."""
    # A byte that never ends a varint, so that the filler cannot seem to begin before its place.
    filler = b"\xff" * size
    answer = ProcessingResponse()
    piece = getattr(answer, side).response.body_mutation.streamed_response
    piece.body = filler
    piece.end_of_stream = end_of_stream
    piece.SetInParent()
    before, _, after = answer.SerializeToString().partition(filler) if size else (answer.SerializeToString(), b"", b"")
    return Template(before, after)


def decision_message(place: Place, destination: str, pick: str, clear_route_cache: bool) -> ProcessingResponse:
    """Return the answer that sends a request to ``destination``."""
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
    """Set a header, and replace what the client sent under its name."""
    option = mutation.set_headers.add(append_action=HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD)
    option.header.key = name
    option.header.raw_value = value.encode()
