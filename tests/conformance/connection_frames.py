"""Cases: SETTINGS, PING, GOAWAY. Source: RFC 9113, sections 6.5, 6.7 and 6.8."""

from __future__ import annotations

from tests.conformance.cases import Alive, Answered, Closed, Suite, connection_error
from tests.conformance.client import Client
from tests.conformance.fields import block, call, message
from tests.conformance.frames import (
    MAX_WINDOW_BYTES,
    Code,
    Flag,
    Kind,
    Setting,
    data,
    goaway,
    headers,
    ping,
    raw,
    settings,
)

CONNECTION_FRAMES = Suite("RFC 9113")
BLOCK = block(call())
MESSAGE = message(b"ping")


def ask(client: Client, stream: int) -> None:
    """Make one call and have its response."""
    client.send(headers(stream, BLOCK), data(stream, MESSAGE, end=True))
    assert client.reply(stream).ended


@CONNECTION_FRAMES.case(connection_error(Code.FRAME_SIZE_ERROR))
def an_acknowledgement_with_content_ends_the_connection(client: Client) -> None:
    """6.5 MUST: "Receipt of a SETTINGS frame with the ACK flag set and a length field value other than 0 MUST be
    treated as a connection error of type FRAME_SIZE_ERROR"."""
    client.send(raw(Kind.SETTINGS, Flag.ACK, 0, bytes(6)))


@CONNECTION_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def settings_on_a_stream_end_the_connection(client: Client) -> None:
    """6.5 MUST: "If an endpoint receives a SETTINGS frame whose Stream Identifier field is anything other than 0x00,
    the endpoint MUST respond with a connection error of type PROTOCOL_ERROR"."""
    client.send(raw(Kind.SETTINGS, 0, 1))


@CONNECTION_FRAMES.case(connection_error(Code.FRAME_SIZE_ERROR))
def settings_of_a_broken_length_end_the_connection(client: Client) -> None:
    """6.5 MUST: "A SETTINGS frame with a length other than a multiple of 6 octets MUST be treated as a connection error
    of type FRAME_SIZE_ERROR"."""
    client.send(raw(Kind.SETTINGS, 0, 0, bytes(3)))


@CONNECTION_FRAMES.case(Alive())
def each_settings_frame_is_acknowledged(client: Client) -> None:
    """6.5.3 MUST: "Once all values have been processed, the recipient MUST immediately emit a SETTINGS frame with the
    ACK flag set"."""
    for _ in range(3):
        client.send(settings((Setting.MAX_CONCURRENT_STREAMS, 10)))
    client.settle()
    acks = [f for f in client.received.frames if f.kind == Kind.SETTINGS and f.flags & Flag.ACK]
    assert len(acks) == 4  # that of the preface too


@CONNECTION_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def enable_push_other_than_0_and_1_ends_the_connection(client: Client) -> None:
    """6.5.2 MUST: "Any value other than 0 or 1 MUST be treated as a connection error of type PROTOCOL_ERROR"."""
    client.send(settings((Setting.ENABLE_PUSH, 2)))


@CONNECTION_FRAMES.case(connection_error(Code.FLOW_CONTROL_ERROR))
def an_initial_window_above_its_maximum_ends_the_connection(client: Client) -> None:
    """6.5.2 MUST: "Values above the maximum flow-control window size of 2^31-1 MUST be treated as a connection error of
    type FLOW_CONTROL_ERROR"."""
    client.send(settings((Setting.INITIAL_WINDOW_SIZE, MAX_WINDOW_BYTES + 1)))


@CONNECTION_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def a_frame_size_below_16_kib_ends_the_connection(client: Client) -> None:
    """6.5.2 MUST: "Values outside this range MUST be treated as a connection error of type PROTOCOL_ERROR"."""
    client.send(settings((Setting.MAX_FRAME_SIZE, (1 << 14) - 1)))


@CONNECTION_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def a_frame_size_of_16_mib_ends_the_connection(client: Client) -> None:
    """6.5.2 MUST: "Values outside this range MUST be treated as a connection error of type PROTOCOL_ERROR"."""
    client.send(settings((Setting.MAX_FRAME_SIZE, 1 << 24)))


@CONNECTION_FRAMES.case(Answered())
def the_extremes_of_every_setting_are_accepted(client: Client) -> None:
    """6.5.2 MUST: these values are inside their ranges."""
    client.configure((Setting.MAX_FRAME_SIZE, (1 << 24) - 1), (Setting.INITIAL_WINDOW_SIZE, MAX_WINDOW_BYTES))
    client.configure((Setting.MAX_CONCURRENT_STREAMS, 0), (Setting.MAX_HEADER_LIST_SIZE, (1 << 32) - 1))
    client.configure((Setting.ENABLE_PUSH, 0), (Setting.HEADER_TABLE_SIZE, 1 << 16), (Setting.MAX_FRAME_SIZE, 1 << 14))
    ask(client, 1)


@CONNECTION_FRAMES.case(Alive())
def an_unknown_setting_is_ignored(client: Client) -> None:
    """6.5.2 MUST: "An endpoint that receives a SETTINGS frame with any unknown or unsupported identifier MUST ignore
    that setting"."""
    client.configure((0xFF, 1), (0, 7))


@CONNECTION_FRAMES.case(Answered((1, 3, 5)))
def a_smaller_header_table_is_signalled_and_respected(client: Client) -> None:
    """4.3.1 MUST: "its HPACK encoder MUST start the next field block with a Dynamic Table Size Update instruction that
    sets the dynamic table to a size that is less than or equal to the reduced maximum"."""
    ask(client, 1)
    client.configure((Setting.HEADER_TABLE_SIZE, 0))
    ask(client, 3)
    client.configure((Setting.HEADER_TABLE_SIZE, 100))
    ask(client, 5)


@CONNECTION_FRAMES.case(Answered((1, 3)))
def a_header_table_that_shrank_and_grew_is_signalled(client: Client) -> None:
    """4.2 MUST: RFC 7541: "the smallest maximum table size that occurs in that interval MUST be signaled in a dynamic
    table size update"."""
    ask(client, 1)
    client.configure((Setting.HEADER_TABLE_SIZE, 0), (Setting.HEADER_TABLE_SIZE, 4096))
    client.received.decoder.header_table_size = 0  # evicted all; the update to 0 would do this too
    client.received.decoder.header_table_size = 4096
    ask(client, 3)


@CONNECTION_FRAMES.case(Alive())
def pings_are_answered_in_order_with_their_content(client: Client) -> None:
    """6.7 MUST: "Receivers of a PING frame that does not include an ACK flag MUST send a PING frame with the ACK flag
    set in response, with an identical frame payload"."""
    sent = [b"numbr%03d" % n for n in range(10)]
    client.send(*(ping(opaque) for opaque in sent))
    client.settle()
    answers = [f.payload for f in client.received.frames if f.kind == Kind.PING and f.flags == Flag.ACK]
    assert answers[:10] == sent


@CONNECTION_FRAMES.case(Alive())
def an_answer_to_no_ping_is_not_answered(client: Client) -> None:
    """6.7 MUST: "An endpoint MUST NOT respond to PING frames containing this flag"."""
    client.send(raw(Kind.PING, Flag.ACK, 0, b"unasked!"))
    client.settle()
    assert all(frame.payload != b"unasked!" for frame in client.received.frames)


@CONNECTION_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def a_ping_on_a_stream_ends_the_connection(client: Client) -> None:
    """6.7 MUST: "If a PING frame is received with a Stream Identifier field value other than 0x00, the recipient MUST
    respond with a connection error of type PROTOCOL_ERROR"."""
    client.send(raw(Kind.PING, 0, 1, bytes(8)))


@CONNECTION_FRAMES.case(connection_error(Code.FRAME_SIZE_ERROR))
def a_short_ping_ends_the_connection(client: Client) -> None:
    """6.7 MUST: "Receipt of a PING frame with a length field value other than 8 MUST be treated as a connection error
    of type FRAME_SIZE_ERROR"."""
    client.send(raw(Kind.PING, 0, 0, bytes(7)))


@CONNECTION_FRAMES.case(connection_error(Code.FRAME_SIZE_ERROR))
def a_long_ping_answer_ends_the_connection(client: Client) -> None:
    """6.7 MUST: "Receipt of a PING frame with a length field value other than 8 MUST be treated as a connection error
    of type FRAME_SIZE_ERROR"."""
    client.send(raw(Kind.PING, Flag.ACK, 0, bytes(9)))


@CONNECTION_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def goaway_on_a_stream_ends_the_connection(client: Client) -> None:
    """6.8 MUST: "An endpoint MUST treat a GOAWAY frame with a stream identifier other than 0x00 as a connection error
    of type PROTOCOL_ERROR"."""
    client.send(raw(Kind.GOAWAY, 0, 1, bytes(8)))


@CONNECTION_FRAMES.case(connection_error(Code.FRAME_SIZE_ERROR))
def a_short_goaway_ends_the_connection(client: Client) -> None:
    """4.2 MUST: FRAME_SIZE_ERROR "if a frame ... is too small to contain mandatory frame data"."""
    client.send(raw(Kind.GOAWAY, 0, 0, bytes(7)))


@CONNECTION_FRAMES.case(connection_error(Code.PROTOCOL_ERROR))
def goaway_names_the_last_stream_that_was_processed(client: Client) -> None:
    """8.7 MUST: "a GOAWAY frame MUST include a stream identifier that is greater than or equal to the given stream
    identifier"; 5.4.1 SHOULD: it is "the last stream that it successfully received from its peer"."""
    ask(client, 1)
    ask(client, 5)
    client.send(raw(Kind.PING, 0, 1, bytes(8)))
    client.until_closed()
    assert client.received.goaway is None or client.received.goaway.number() == 5


@CONNECTION_FRAMES.case(Alive(), Closed())
def goaway_with_debug_data_and_an_unknown_code_is_accepted(client: Client) -> None:
    """7 MUST: "Unknown or unsupported error codes MUST NOT trigger any special behavior"."""
    client.send(goaway(0xFF, debug=b"all the best"))
