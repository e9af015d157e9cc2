"""Cases: connection preface, frame format and size, extensions. Source: RFC 9113, sections 3.4, 4 and 5.5."""

from __future__ import annotations

from tests.conformance.cases import Alive, Answered, Closed, Suite, connection_error, either_error
from tests.conformance.client import Client
from tests.conformance.fields import block, call, message
from tests.conformance.frames import (
    DEFAULT_MAX_FRAME_BYTES,
    PREFACE,
    Code,
    Flag,
    Kind,
    Setting,
    continuation,
    data,
    headers,
    ping,
    priority,
    raw,
    settings,
    split,
)

STARTING = Suite("RFC 9113")
RESERVED_BIT = 1 << 31
BLOCK = block(call())
MESSAGE = message(b"ping")


def max_frame_bytes(client: Client) -> int:
    """The largest payload that the server accepts."""
    return client.received.settings.get(Setting.MAX_FRAME_SIZE, DEFAULT_MAX_FRAME_BYTES)


@STARTING.case(Alive(), preface=False)
def the_preface_is_answered_with_settings(client: Client) -> None:
    """3.4 MUST: "The server connection preface consists of a potentially empty SETTINGS frame that MUST be the first
    frame the server sends"."""
    client.handshake()


@STARTING.case(Alive(), preface=False)
def the_preface_may_come_byte_by_byte(client: Client) -> None:
    """3.4 EXAMPLE: TCP segments have no meaning."""
    client.send(PREFACE, settings())
    client.flush(pieces_bytes=1)
    client.until_settings()


@STARTING.case(Answered(), preface=False)
def a_request_may_follow_the_preface_at_once(client: Client) -> None:
    """3.4 MAY: "clients are permitted to send additional frames to the server immediately after sending the client
    connection preface"."""
    client.send(PREFACE, settings(), headers(1, BLOCK), data(1, MESSAGE, end=True))
    client.reply(1)


@STARTING.case(Closed(), preface=False)
def a_wrong_preface_ends_the_connection(client: Client) -> None:
    """3.4 MUST: "Clients and servers MUST treat an invalid connection preface as a connection error of type
    PROTOCOL_ERROR. A GOAWAY frame MAY be omitted in this case"."""
    client.send(b"INVALID CONNECTION PREFACE\r\n\r\n")


@STARTING.case(Closed(), preface=False)
def a_preface_wrong_in_its_last_byte_ends_the_connection(client: Client) -> None:
    """3.4 MUST: "Clients and servers MUST treat an invalid connection preface as a connection error"."""
    client.send(PREFACE[:-1] + b"\r", settings())


@STARTING.case(Closed(), preface=False)
def http_1_ends_the_connection(client: Client) -> None:
    """3.4 MUST: "Clients and servers MUST treat an invalid connection preface as a connection error"."""
    client.send(b"GET / HTTP/1.1\r\nhost: conformance\r\n\r\n")


@STARTING.case(connection_error(Code.PROTOCOL_ERROR), preface=False)
def a_preface_without_settings_ends_the_connection(client: Client) -> None:
    """3.4 MUST: "This sequence MUST be followed by a SETTINGS frame, which MAY be empty"."""
    client.send(PREFACE, ping(b"too soon"))


@STARTING.case(connection_error(Code.PROTOCOL_ERROR), preface=False)
def a_request_before_settings_ends_the_connection(client: Client) -> None:
    """3.4 MUST: "This sequence MUST be followed by a SETTINGS frame, which MAY be empty"."""
    client.send(PREFACE, headers(1, BLOCK))


@STARTING.case(Alive())
def a_frame_of_unknown_type_is_ignored(client: Client) -> None:
    """4.1 MUST: "Implementations MUST ignore and discard frames of unknown types"."""
    client.send(raw(0x16, 0, 0, b"unheard-of"))


@STARTING.case(Answered())
def frames_of_unknown_type_on_an_open_and_an_idle_stream_are_ignored(client: Client) -> None:
    """5.5 MUST: "Implementations MUST discard frames that have unknown or unsupported types"."""
    client.send(headers(1, BLOCK), raw(0xFE, 0xFF, 1, b"x" * 99), raw(0xFE, 0, 7), data(1, MESSAGE, end=True))


@STARTING.case(Alive())
def undefined_flags_of_ping_are_ignored(client: Client) -> None:
    """4.1 MUST: "Unused flags are those that have no defined semantics for a particular frame type; they MUST be
    ignored on receipt"."""
    client.send(raw(Kind.PING, 0xFE, 0, b"flagship"))


@STARTING.case(Answered())
def undefined_flags_of_headers_and_data_are_ignored(client: Client) -> None:
    """4.1 MUST: "they MUST be ignored on receipt"."""
    odd = 0xFF - Flag.PADDED - Flag.PRIORITY - Flag.END_STREAM
    client.send(raw(Kind.HEADERS, odd, 1, BLOCK), raw(Kind.DATA, 0xF7, 1, MESSAGE))


@STARTING.case(Answered())
def the_reserved_bit_of_the_stream_identifier_is_ignored(client: Client) -> None:
    """4.1 MUST: the reserved bit "MUST be ignored when receiving"."""
    client.send(headers(1 | RESERVED_BIT, BLOCK), data(1 | RESERVED_BIT, MESSAGE, end=True))
    client.send(raw(Kind.PING, 0, RESERVED_BIT, b"reserved"))


@STARTING.case(Answered())
def a_data_frame_of_16_kib_is_accepted(client: Client) -> None:
    """4.2 MUST: "All implementations MUST be capable of receiving and minimally processing frames up to 2^14 octets in
    length, plus the 9-octet frame header"."""
    client.generous = True
    client.send(headers(1, BLOCK))
    client.upload(1, message(bytes(DEFAULT_MAX_FRAME_BYTES - 5)), frame_bytes=DEFAULT_MAX_FRAME_BYTES)


@STARTING.case(*either_error(Code.FRAME_SIZE_ERROR))
def a_larger_data_frame_than_allowed_is_an_error(client: Client) -> None:
    """4.2 MUST: "An endpoint MUST send an error code of FRAME_SIZE_ERROR if a frame exceeds the size defined in
    SETTINGS_MAX_FRAME_SIZE"."""
    client.send(headers(1, BLOCK), data(1, bytes(max_frame_bytes(client) + 1)))


@STARTING.case(connection_error(Code.FRAME_SIZE_ERROR))
def a_larger_headers_frame_than_allowed_ends_the_connection(client: Client) -> None:
    """4.2 MUST: "A frame size error in a frame that could alter the state of the entire connection MUST be treated as
    a connection error"."""
    filler = (b"filler", b"x" * max_frame_bytes(client))
    client.send(headers(1, block(call(filler)), end=True))


@STARTING.case(connection_error(Code.FRAME_SIZE_ERROR))
def a_larger_unknown_frame_than_allowed_is_an_error(client: Client) -> None:
    """4.2 MUST: "An endpoint MUST send an error code of FRAME_SIZE_ERROR if a frame exceeds the size defined in
    SETTINGS_MAX_FRAME_SIZE"."""
    client.send(raw(0x16, 0, 0, bytes(max_frame_bytes(client) + 1)))


@STARTING.case(connection_error(Code.PROTOCOL_ERROR))
def priority_inside_a_field_block_ends_the_connection(client: Client) -> None:
    """4.3 MUST: "Each field block MUST be transmitted as a contiguous sequence of frames, with no interleaved frames of
    any other type or from any other stream"."""
    first, last = split(BLOCK, 9)
    client.send(headers(1, first, complete=False), priority(1), continuation(1, last))


@STARTING.case(connection_error(Code.PROTOCOL_ERROR))
def a_ping_inside_a_field_block_ends_the_connection(client: Client) -> None:
    """4.3 MUST: "with no interleaved frames of any other type or from any other stream"."""
    first, last = split(BLOCK, 9)
    client.send(headers(1, first, complete=False), ping(b"intruder"), continuation(1, last))


@STARTING.case(connection_error(Code.PROTOCOL_ERROR))
def headers_of_another_stream_inside_a_field_block_end_the_connection(client: Client) -> None:
    """4.3 MUST: "with no interleaved frames of any other type or from any other stream"."""
    first, last = split(BLOCK, 9)
    client.send(headers(1, first, complete=False), headers(3, BLOCK), continuation(1, last))


@STARTING.case(connection_error(Code.PROTOCOL_ERROR))
def an_unknown_frame_inside_a_field_block_ends_the_connection(client: Client) -> None:
    """5.5 MUST: "extension frames that appear in the middle of a field block are not permitted; these MUST be treated
    as a connection error of type PROTOCOL_ERROR"."""
    first, last = split(BLOCK, 9)
    client.send(headers(1, first, complete=False), raw(0x16, 0, 1, b"unheard-of"), continuation(1, last))
