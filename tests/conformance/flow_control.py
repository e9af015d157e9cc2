"""Cases: flow control, in both directions. Source: RFC 9113, section 6.9."""

from __future__ import annotations

from tests.conformance.cases import BLOCKED, MALFORMED, Alive, Answered, Suite, connection_error, either_error
from tests.conformance.client import Client
from tests.conformance.fields import block, call, message
from tests.conformance.frames import (
    DEFAULT_WINDOW_BYTES,
    MAX_WINDOW_BYTES,
    Code,
    Kind,
    Setting,
    data,
    headers,
    raw,
    reset,
    settings,
    window_update,
)

FLOW_CONTROL = Suite("RFC 9113")
BLOCK = block(call())
MESSAGE = message(b"ping")
NO_STREAM = call(path=b"/test.Missing/Method")


def ask(client: Client) -> None:
    """Make one call on stream 1."""
    client.send(headers(1, BLOCK), data(1, MESSAGE, end=True))


def arrived_bytes(client: Client) -> int:
    """How much of the response on stream 1 has come, once all that may come has."""
    client.settle()
    return len(client.received.reply(1).content)


@FLOW_CONTROL.case(connection_error(Code.PROTOCOL_ERROR))
def an_increment_of_zero_for_the_connection_ends_it(client: Client) -> None:
    """6.9 MUST: "A receiver MUST treat the receipt of a WINDOW_UPDATE frame with a flow-control window increment of 0
    as a stream error of type PROTOCOL_ERROR; errors on the connection flow-control window MUST be treated as a
    connection error"."""
    client.send(window_update(0, 0))


@FLOW_CONTROL.case(*either_error(Code.PROTOCOL_ERROR))
def an_increment_of_zero_for_a_stream_is_an_error(client: Client) -> None:
    """6.9 MUST: "A receiver MUST treat the receipt of a WINDOW_UPDATE frame with a flow-control window increment of 0
    as a stream error of type PROTOCOL_ERROR"."""
    client.send(headers(1, BLOCK), window_update(1, 0))


@FLOW_CONTROL.case(connection_error(Code.FRAME_SIZE_ERROR))
def window_update_of_another_length_ends_the_connection(client: Client) -> None:
    """6.9 MUST: "A WINDOW_UPDATE frame with a length other than 4 octets MUST be treated as a connection error of type
    FRAME_SIZE_ERROR"."""
    client.send(raw(Kind.WINDOW_UPDATE, 0, 0, bytes(3)))


@FLOW_CONTROL.case(connection_error(Code.FLOW_CONTROL_ERROR))
def a_connection_window_above_its_maximum_ends_the_connection(client: Client) -> None:
    """6.9.1 MUST: "it MUST terminate either the stream or the connection, as appropriate ... for the connection, a
    GOAWAY frame with an error code of FLOW_CONTROL_ERROR is sent"."""
    client.send(window_update(0, MAX_WINDOW_BYTES), window_update(0, MAX_WINDOW_BYTES))


@FLOW_CONTROL.case(*either_error(Code.FLOW_CONTROL_ERROR))
def a_stream_window_above_its_maximum_is_an_error(client: Client) -> None:
    """6.9.1 MUST: "For streams, the sender sends a RST_STREAM with an error code of FLOW_CONTROL_ERROR"."""
    client.send(headers(1, BLOCK), window_update(1, MAX_WINDOW_BYTES - DEFAULT_WINDOW_BYTES), window_update(1, 1))


@FLOW_CONTROL.case(Alive())
def windows_at_their_maximum_are_accepted(client: Client) -> None:
    """6.9.1 MUST: "A sender MUST NOT allow a flow-control window to exceed 2^31-1 octets"; that itself is allowed."""
    client.send(headers(1, BLOCK))
    client.grant(1, MAX_WINDOW_BYTES - DEFAULT_WINDOW_BYTES)
    client.grant_everything()


@FLOW_CONTROL.case(connection_error(Code.FLOW_CONTROL_ERROR))
def an_initial_window_that_overflows_an_open_stream_ends_the_connection(client: Client) -> None:
    """6.9.2 MUST: "An endpoint MUST treat a change to SETTINGS_INITIAL_WINDOW_SIZE that causes any flow-control window
    to exceed the maximum size as a connection error of type FLOW_CONTROL_ERROR"."""
    client.send(headers(1, BLOCK), window_update(1, MAX_WINDOW_BYTES - DEFAULT_WINDOW_BYTES))
    client.send(settings((Setting.INITIAL_WINDOW_SIZE, DEFAULT_WINDOW_BYTES + 1)))


@FLOW_CONTROL.case(Alive(), settings=((Setting.INITIAL_WINDOW_SIZE, 1),))
def a_window_of_one_byte_lets_one_byte_out(client: Client) -> None:
    """6.9.1 MUST: "The sender MUST NOT send a flow-controlled frame with a length that exceeds the space available in
    either of the flow-control windows advertised by the receiver"."""
    ask(client)
    assert arrived_bytes(client) == 1
    client.grant(1, 2)
    assert arrived_bytes(client) == 3


@FLOW_CONTROL.case(Answered(), settings=BLOCKED)
def a_blocked_response_goes_out_in_order_once_there_is_credit(client: Client) -> None:
    """6.9.1 MUST: "A sender that receives a WINDOW_UPDATE frame updates the corresponding window by the amount
    specified in the frame"."""
    ask(client)
    assert arrived_bytes(client) == 0
    client.grant(1, 1000)


@FLOW_CONTROL.case(Answered(), settings=((Setting.INITIAL_WINDOW_SIZE, 2),))
def the_later_of_two_values_of_a_setting_counts(client: Client) -> None:
    """6.5.3 MUST: "The values in the SETTINGS frame MUST be processed in the order they appear"."""
    client.configure((Setting.INITIAL_WINDOW_SIZE, 100), (Setting.INITIAL_WINDOW_SIZE, 1))
    ask(client)
    assert arrived_bytes(client) == 1
    client.grant(1, 1000)


@FLOW_CONTROL.case(Alive(), settings=BLOCKED)
def a_larger_initial_window_releases_an_open_stream(client: Client) -> None:
    """6.9.2 MUST: "When the value of SETTINGS_INITIAL_WINDOW_SIZE changes, a receiver MUST adjust the size of all
    stream flow-control windows that it maintains by the difference between the new value and the old value"."""
    ask(client)
    assert arrived_bytes(client) == 0
    client.configure((Setting.INITIAL_WINDOW_SIZE, 1))
    assert arrived_bytes(client) == 1


@FLOW_CONTROL.case(Alive(), settings=((Setting.INITIAL_WINDOW_SIZE, 3),))
def a_window_may_become_negative(client: Client) -> None:
    """6.9.2 MUST: "A sender MUST track the negative flow-control window and MUST NOT send new flow-controlled frames
    until it receives WINDOW_UPDATE frames that cause the flow-control window to become positive"."""
    ask(client)
    assert arrived_bytes(client) == 3
    client.configure((Setting.INITIAL_WINDOW_SIZE, 1))
    client.grant(1, 2)
    assert arrived_bytes(client) == 3
    client.grant(1, 1)
    assert arrived_bytes(client) == 4


@FLOW_CONTROL.case(Answered())
def credit_for_padding_comes_back(client: Client) -> None:
    """6.1 MUST: "The entire DATA frame payload is included in flow control, including the Pad Length and Padding fields
    if present"; so its credit must be returned too, else the connection starves."""
    client.send(headers(1, BLOCK))
    client.upload(1, message(bytes(20_000)), frame_bytes=50, padding=255)


def flood_refused_streams(client: Client, first: list[tuple[bytes, bytes]]) -> None:
    """Send 160 KB of DATA, within the connection's window, to streams that the server answers or resets early."""
    for stream in range(1, 20, 2):
        client.send(headers(stream, block(first)))
        client.upload(stream, bytes(16_000))
    client.send(headers(21, BLOCK), data(21, MESSAGE, end=True))


@FLOW_CONTROL.case(Answered((21,)))
def credit_for_data_of_calls_answered_early_comes_back(client: Client) -> None:
    """6.9 MUST: "A receiver that receives a flow-controlled frame MUST always account for its contribution against the
    connection flow-control window ... even if the frame is in error"."""
    flood_refused_streams(client, NO_STREAM)


@FLOW_CONTROL.case(Answered((21,)))
def credit_for_data_of_malformed_requests_comes_back(client: Client) -> None:
    """5.1 MUST: after sending RST_STREAM, "An endpoint MUST minimally process and then discard any frames it receives
    in this state ... the content of DATA frames counts toward the connection flow-control window"."""
    flood_refused_streams(client, call((b"connection", b"close")))


@FLOW_CONTROL.case(Answered((21,)))
def credit_for_data_of_streams_the_client_resets_comes_back(client: Client) -> None:
    """6.9 MUST: "A receiver that receives a flow-controlled frame MUST always account for its contribution against the
    connection flow-control window"."""
    for stream in range(1, 20, 2):
        client.send(headers(stream, BLOCK))
        client.upload(stream, message(bytes(32_000))[:16_000], end=False)
        client.send(reset(stream))
    client.send(headers(21, BLOCK), data(21, MESSAGE, end=True))


@FLOW_CONTROL.case(Answered((1,)), *MALFORMED, *either_error(Code.FLOW_CONTROL_ERROR, Code.ENHANCE_YOUR_CALM))
def more_data_than_the_window_is_refused_or_consumed(client: Client) -> None:
    """6.9 MAY: "A receiver MAY respond with a stream error or connection error of type FLOW_CONTROL_ERROR if it is
    unable to accept a frame"."""
    client.generous = True
    client.send(headers(1, BLOCK))
    whole = message(bytes(300_000))
    for at in range(0, len(whole), 16_000):
        client.send(data(1, whole[at : at + 16_000], end=at + 16_000 >= len(whole)))
