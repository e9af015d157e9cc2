"""Cases: DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, CONTINUATION. Source: RFC 9113, 6.1 to 6.4 and 6.10."""

from __future__ import annotations

from tests.conformance.cases import MALFORMED, Alive, Answered, Closed, Suite, connection_error, either_error
from tests.conformance.client import Client
from tests.conformance.fields import block, call, message
from tests.conformance.frames import (
    Code,
    Flag,
    Kind,
    continuation,
    data,
    dependency,
    headers,
    priority,
    raw,
    reset,
    split,
)

STREAM_FRAMES = Suite("RFC 9113")
BLOCK = block(call())
MESSAGE = message(b"ping")


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def data_on_stream_zero_ends_the_connection(client: Client) -> None:
    """6.1 MUST: "If a DATA frame is received whose Stream Identifier field is 0x00, the recipient MUST respond with a
    connection error of type PROTOCOL_ERROR"."""
    client.send(data(0, MESSAGE))


@STREAM_FRAMES.case(Answered())
def padding_of_data_is_removed(client: Client) -> None:
    """6.1 MUST: padding "contains no application semantic value"."""
    client.send(headers(1, BLOCK), data(1, MESSAGE[:2], padding=0), data(1, b"", padding=255))
    client.send(data(1, MESSAGE[2:], padding=9, end=True))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def padding_of_data_as_long_as_its_payload_ends_the_connection(client: Client) -> None:
    """6.1 MUST: "If the length of the padding is the length of the frame payload or greater, the recipient MUST treat
    this as a connection error of type PROTOCOL_ERROR"."""
    client.send(headers(1, BLOCK), raw(Kind.DATA, Flag.PADDED | Flag.END_STREAM, 1, b"\x06" + bytes(5)))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR, Code.FRAME_SIZE_ERROR))
def padded_data_without_a_pad_length_ends_the_connection(client: Client) -> None:
    """4.2 MUST: FRAME_SIZE_ERROR "if a frame ... is too small to contain mandatory frame data"."""
    client.send(headers(1, BLOCK), raw(Kind.DATA, Flag.PADDED, 1))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def headers_on_stream_zero_end_the_connection(client: Client) -> None:
    """6.2 MUST: "If a HEADERS frame is received whose Stream Identifier field is 0x00, the recipient MUST respond with
    a connection error of type PROTOCOL_ERROR"."""
    client.send(headers(0, BLOCK, end=True))


@STREAM_FRAMES.case(Answered((1, 3, 5)))
def padding_and_priority_of_headers_are_removed(client: Client) -> None:
    """6.2 MUST: "HEADERS frames can include padding", and the priority fields stand before the fragment."""
    padded = b"\x07" + BLOCK + bytes(7)
    weighted = dependency(0, 255, exclusive=True) + BLOCK
    both = b"\x02" + dependency(3) + BLOCK + bytes(2)
    client.send(headers(1, padded, flags=Flag.PADDED), data(1, MESSAGE, end=True))
    client.send(headers(3, weighted, flags=Flag.PRIORITY), data(3, MESSAGE, end=True))
    client.send(headers(5, both, flags=Flag.PADDED | Flag.PRIORITY), data(5, MESSAGE, end=True))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def padding_of_headers_longer_than_the_payload_ends_the_connection(client: Client) -> None:
    """6.2 MUST: the padding of HEADERS is as that of DATA: not to reach the length of the payload."""
    client.send(headers(1, bytes((len(BLOCK) + 1,)) + BLOCK, flags=Flag.PADDED, end=True))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR, Code.FRAME_SIZE_ERROR))
def padding_of_headers_that_leaves_no_room_for_priority_ends_the_connection(client: Client) -> None:
    """6.2 MUST: the payload holds pad length, priority, fragment and padding."""
    payload = bytes((8,)) + dependency(0) + bytes(4)
    client.send(headers(1, payload, flags=Flag.PADDED | Flag.PRIORITY, end=True))


@STREAM_FRAMES.case(connection_error(Code.FRAME_SIZE_ERROR, Code.PROTOCOL_ERROR))
def headers_too_short_for_their_priority_end_the_connection(client: Client) -> None:
    """4.2 MUST: FRAME_SIZE_ERROR "if a frame ... is too small to contain mandatory frame data"."""
    client.send(headers(1, bytes(4), flags=Flag.PRIORITY, end=True))


@STREAM_FRAMES.case(connection_error(Code.FRAME_SIZE_ERROR, Code.PROTOCOL_ERROR))
def padded_headers_without_a_pad_length_end_the_connection(client: Client) -> None:
    """4.2 MUST: FRAME_SIZE_ERROR "if a frame ... is too small to contain mandatory frame data"."""
    client.send(headers(1, b"", flags=Flag.PADDED, end=True))


@STREAM_FRAMES.case(Answered(), *either_error(Code.PROTOCOL_ERROR))
def headers_that_depend_on_their_own_stream_are_ignored_or_refused(client: Client) -> None:
    """5.3 MAY: RFC 7540 made it a stream error of type PROTOCOL_ERROR; RFC 9113 deprecates the signal."""
    client.send(headers(1, dependency(1) + BLOCK, flags=Flag.PRIORITY), data(1, MESSAGE, end=True))


@STREAM_FRAMES.case(Alive(), *either_error(Code.PROTOCOL_ERROR))
def priority_on_its_own_stream_is_ignored_or_refused(client: Client) -> None:
    """5.3 MAY: RFC 7540 made it a stream error of type PROTOCOL_ERROR; RFC 9113 deprecates the signal."""
    client.send(headers(1, BLOCK), priority(1, on=1))


@STREAM_FRAMES.case(Answered())
def priority_of_any_weight_and_dependency_is_accepted(client: Client) -> None:
    """6.3 MUST: "The PRIORITY frame can be sent on a stream in any state"."""
    client.send(priority(1, 0, 0), priority(1, 0, 255), priority(3, 1), priority(9, 3, exclusive=True))
    client.send(headers(1, BLOCK), data(1, MESSAGE, end=True))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def priority_on_stream_zero_ends_the_connection(client: Client) -> None:
    """6.3 MUST: "If a PRIORITY frame is received with a stream identifier of 0x00, the recipient MUST respond with a
    connection error of type PROTOCOL_ERROR"."""
    client.send(priority(0))


@STREAM_FRAMES.case(*either_error(Code.FRAME_SIZE_ERROR))
def priority_of_another_length_is_an_error(client: Client) -> None:
    """6.3 MUST: "A PRIORITY frame with a length other than 5 octets MUST be treated as a stream error of type
    FRAME_SIZE_ERROR"."""
    client.send(headers(1, BLOCK), raw(Kind.PRIORITY, 0, 1, bytes(4)))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def rst_stream_on_stream_zero_ends_the_connection(client: Client) -> None:
    """6.4 MUST: "If a RST_STREAM frame is received with a stream identifier of 0x00, the recipient MUST treat this as a
    connection error of type PROTOCOL_ERROR"."""
    client.send(reset(0))


@STREAM_FRAMES.case(connection_error(Code.FRAME_SIZE_ERROR))
def a_short_rst_stream_ends_the_connection(client: Client) -> None:
    """6.4 MUST: "A RST_STREAM frame with a length other than 4 octets MUST be treated as a connection error of type
    FRAME_SIZE_ERROR"."""
    client.send(headers(1, BLOCK), raw(Kind.RST_STREAM, 0, 1, bytes(3)))


@STREAM_FRAMES.case(connection_error(Code.FRAME_SIZE_ERROR))
def a_long_rst_stream_ends_the_connection(client: Client) -> None:
    """6.4 MUST: "A RST_STREAM frame with a length other than 4 octets MUST be treated as a connection error of type
    FRAME_SIZE_ERROR"."""
    client.send(headers(1, BLOCK), raw(Kind.RST_STREAM, 0, 1, bytes(5)))


@STREAM_FRAMES.case(Answered((3,)))
def rst_stream_with_an_unknown_code_is_a_reset_like_any_other(client: Client) -> None:
    """7 MUST: "Unknown or unsupported error codes MUST NOT trigger any special behavior"."""
    client.send(headers(1, BLOCK), reset(1, 0xFFFF), headers(3, BLOCK), data(3, MESSAGE, end=True))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def push_promise_from_a_client_ends_the_connection(client: Client) -> None:
    """8.4 MUST: "A client cannot push. Thus, servers MUST treat the receipt of a PUSH_PROMISE frame as a connection
    error of type PROTOCOL_ERROR"."""
    client.send(headers(1, BLOCK), raw(Kind.PUSH_PROMISE, Flag.END_HEADERS, 1, (2).to_bytes(4) + BLOCK))


@STREAM_FRAMES.case(Answered((1, 3)))
def a_field_block_may_come_in_many_pieces(client: Client) -> None:
    """6.10 MUST: "Any number of CONTINUATION frames can be sent"; an empty one too."""
    first, second, third, last = split(BLOCK, 1, 20, 21)
    client.send(headers(1, first, complete=False), continuation(1, second, complete=False))
    client.send(continuation(1, third, complete=False), continuation(1, last), data(1, MESSAGE, end=True))
    client.send(headers(3, b"", complete=False), continuation(3, BLOCK, complete=False), continuation(3, b""))
    client.send(data(3, MESSAGE, end=True))


@STREAM_FRAMES.case(Answered(tuple(range(1, 2 * len(BLOCK), 2))))
def a_field_block_may_be_cut_at_every_byte(client: Client) -> None:
    """4.3 EXAMPLE: a field block is the concatenation of its fragments; fragments end anywhere."""
    for cut in range(len(BLOCK)):
        stream = 2 * cut + 1
        first, last = split(BLOCK, cut)
        client.send(headers(stream, first, complete=False), continuation(stream, last))
        client.send(data(stream, MESSAGE, end=True))


@STREAM_FRAMES.case(Answered())
def trailers_may_continue_after_end_stream(client: Client) -> None:
    """6.2 MUST: "a HEADERS frame with the END_STREAM flag set can be followed by CONTINUATION frames on the same
    stream"."""
    client.send(headers(1, BLOCK), data(1, MESSAGE))
    first, last = split(block([(b"checksum", b"0")]), 4)
    client.send(headers(1, first, end=True, complete=False), continuation(1, last))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def continuation_on_stream_zero_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "If a CONTINUATION frame is received with a Stream Identifier field of 0x00, the recipient MUST
    respond with a connection error of type PROTOCOL_ERROR"."""
    first, last = split(BLOCK, 9)
    client.send(headers(1, first, complete=False), continuation(0, last))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def continuation_of_another_stream_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "A receiver MUST treat the receipt of any other type of frame or a frame on a different stream as a
    connection error of type PROTOCOL_ERROR"."""
    first, last = split(BLOCK, 9)
    client.send(headers(1, first, complete=False), continuation(3, last))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def continuation_followed_by_data_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "If the END_HEADERS flag is not set, this frame MUST be followed by another CONTINUATION frame"."""
    first, second, _ = split(BLOCK, 5, 9)
    client.send(headers(1, first, complete=False), continuation(1, second, complete=False), data(1, MESSAGE))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def continuation_after_a_whole_block_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "A CONTINUATION frame MUST be preceded by a HEADERS, PUSH_PROMISE or CONTINUATION frame without the
    END_HEADERS flag set. A recipient that observes violation of this rule MUST respond with a connection error"."""
    client.send(headers(1, BLOCK), continuation(1, b""))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def continuation_after_a_last_continuation_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "A recipient that observes violation of this rule MUST respond with a connection error of type
    PROTOCOL_ERROR"."""
    first, last = split(BLOCK, 9)
    client.send(headers(1, first, complete=False), continuation(1, last), continuation(1, b""))


@STREAM_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def continuation_after_data_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "A recipient that observes violation of this rule MUST respond with a connection error of type
    PROTOCOL_ERROR"."""
    client.send(headers(1, BLOCK), data(1, MESSAGE), continuation(1, b""))


@STREAM_FRAMES.case(Closed(), *MALFORMED, *either_error(Code.ENHANCE_YOUR_CALM, Code.REFUSED_STREAM))
def a_field_block_of_a_megabyte_is_refused(client: Client) -> None:
    """10.5.1 SHOULD: "A server that receives a larger field block than it is willing to handle can send an HTTP 431
    (Request Header Fields Too Large) status code"; it must not be stored without a bound."""
    client.send(headers(1, BLOCK, complete=False))
    for _ in range(64):
        client.send(continuation(1, block([(b"filler", bytes(b"x" * 16_000))]), complete=False))
    client.send(continuation(1, b""))
