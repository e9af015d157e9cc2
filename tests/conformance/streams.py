"""Cases: stream states, identifiers and concurrency. Source: RFC 9113, section 5.1."""

from __future__ import annotations

import pytest

from tests.conformance.cases import (
    BLOCKED,
    Alive,
    Answered,
    Closed,
    Suite,
    connection_error,
    either_error,
    stream_error,
)
from tests.conformance.client import Client
from tests.conformance.fields import block, call, message
from tests.conformance.frames import (
    Code,
    Setting,
    continuation,
    data,
    goaway,
    headers,
    priority,
    reset,
    window_update,
)
from tests.conformance.received import Reply

STREAMS = Suite("RFC 9113")
BLOCK = block(call())
MESSAGE = message(b"ping")
TRAILERS = block([(b"checksum", b"0")])
CLOSED = (
    *either_error(Code.STREAM_CLOSED),
    connection_error(Code.PROTOCOL_ERROR),  # 5.1: "or PROTOCOL_ERROR", once the peer surely knows of the end
)
MOST_STREAMS_TO_OPEN = 2_000


def half_close(client: Client) -> None:
    """Send a whole request whose response is held back: stream 1 becomes half-closed (remote)."""
    client.send(headers(1, BLOCK), data(1, MESSAGE, end=True))


def finish(client: Client) -> None:
    """Have a whole exchange: stream 1 becomes closed."""
    half_close(client)
    assert client.reply(1).ended


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR))
def data_on_an_idle_stream_ends_the_connection(client: Client) -> None:
    """5.1 MUST: "Receiving any frame other than HEADERS or PRIORITY on a stream in this state MUST be treated as a
    connection error of type PROTOCOL_ERROR"."""
    client.send(data(1, MESSAGE, end=True))


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR))
def rst_stream_on_an_idle_stream_ends_the_connection(client: Client) -> None:
    """6.4 MUST: "If a RST_STREAM frame identifying an idle stream is received, the recipient MUST treat this as a
    connection error of type PROTOCOL_ERROR"."""
    client.send(reset(1))


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR))
def window_update_on_an_idle_stream_ends_the_connection(client: Client) -> None:
    """5.1 MUST: "Receiving any frame other than HEADERS or PRIORITY on a stream in this state MUST be treated as a
    connection error of type PROTOCOL_ERROR"."""
    client.send(window_update(1, 100))


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR))
def continuation_on_an_idle_stream_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "A recipient that observes violation of this rule MUST respond with a connection error of type
    PROTOCOL_ERROR"."""
    client.send(continuation(1, BLOCK))


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR))
def data_on_an_idle_stream_above_the_last_one_ends_the_connection(client: Client) -> None:
    """5.1 MUST: "Receiving any frame other than HEADERS or PRIORITY on a stream in this state MUST be treated as a
    connection error of type PROTOCOL_ERROR"."""
    finish(client)
    client.send(data(3, MESSAGE))


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR))
def window_update_on_an_even_stream_ends_the_connection(client: Client) -> None:
    """5.1 MUST: streams that only the server may open stay idle, and "Receiving any frame other than HEADERS or
    PRIORITY on a stream in this state MUST be treated as a connection error of type PROTOCOL_ERROR"."""
    client.send(headers(3, BLOCK), window_update(2, 100))


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR))
def rst_stream_on_an_even_stream_ends_the_connection(client: Client) -> None:
    """6.4 MUST: "If a RST_STREAM frame identifying an idle stream is received, the recipient MUST treat this as a
    connection error of type PROTOCOL_ERROR"."""
    client.send(headers(3, BLOCK), reset(2))


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR))
def data_on_an_even_stream_ends_the_connection(client: Client) -> None:
    """5.1 MUST: "Receiving any frame other than HEADERS or PRIORITY on a stream in this state MUST be treated as a
    connection error of type PROTOCOL_ERROR"."""
    client.send(headers(3, BLOCK), data(2, MESSAGE))


@STREAMS.case(Answered((5,)))
def priority_on_idle_open_and_closed_streams_is_accepted(client: Client) -> None:
    """5.1 MUST: "Note that PRIORITY can be sent and received in any stream state"."""
    client.send(priority(5), priority(1))
    finish(client)
    client.send(priority(1), headers(5, BLOCK), priority(5), priority(3), data(5, MESSAGE, end=True), priority(5))


@STREAMS.case(Alive(), settings=BLOCKED)
def window_update_and_priority_on_a_half_closed_stream_are_accepted(client: Client) -> None:
    """5.1 MUST: errors are for "additional frames, other than WINDOW_UPDATE, PRIORITY, or RST_STREAM"."""
    half_close(client)
    client.send(priority(1), window_update(1, 1))
    client.received.grant(1, 1)


@STREAMS.case(Alive(), settings=BLOCKED)
def rst_stream_on_a_half_closed_stream_ends_it_silently(client: Client) -> None:
    """5.4.2 MUST: "an endpoint MUST NOT send a RST_STREAM in response to a RST_STREAM frame"; after it, nothing is
    sent."""
    half_close(client)
    client.settle()
    before = len(client.received.frames)
    client.send(reset(1))
    client.grant(0, 1000)
    client.settle()
    assert all(frame.stream != 1 for frame in client.received.frames[before:])


@STREAMS.case(*either_error(Code.STREAM_CLOSED), settings=BLOCKED)
def data_on_a_half_closed_stream_is_an_error(client: Client) -> None:
    """5.1 MUST: "If an endpoint receives additional frames, other than WINDOW_UPDATE, PRIORITY, or RST_STREAM, for a
    stream that is in this state, it MUST respond with a stream error of type STREAM_CLOSED"."""
    half_close(client)
    client.send(data(1, MESSAGE, end=True))


@STREAMS.case(*either_error(Code.STREAM_CLOSED), settings=BLOCKED)
def headers_on_a_half_closed_stream_are_an_error(client: Client) -> None:
    """5.1 MUST: "it MUST respond with a stream error of type STREAM_CLOSED"."""
    half_close(client)
    client.send(headers(1, TRAILERS, end=True))


@STREAMS.case(connection_error(Code.STREAM_CLOSED, Code.PROTOCOL_ERROR), settings=BLOCKED)
def continuation_on_a_half_closed_stream_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "A CONTINUATION frame MUST be preceded by a HEADERS, PUSH_PROMISE or CONTINUATION frame without the
    END_HEADERS flag set"."""
    half_close(client)
    client.send(continuation(1, TRAILERS))


@STREAMS.case(*CLOSED)
def data_on_a_closed_stream_is_an_error(client: Client) -> None:
    """6.1 MUST: "If a DATA frame is received whose stream is not in the "open" or "half-closed (local)" state, the
    recipient MUST respond with a stream error of type STREAM_CLOSED"."""
    finish(client)
    client.send(data(1, MESSAGE, end=True))


@STREAMS.case(*CLOSED)
def headers_on_a_closed_stream_are_an_error(client: Client) -> None:
    """5.1.1 MUST: "Stream identifiers cannot be reused"; "An endpoint that receives an unexpected stream identifier
    MUST respond with a connection error of type PROTOCOL_ERROR"."""
    finish(client)
    client.send(headers(1, BLOCK, end=True))


@STREAMS.case(connection_error(Code.STREAM_CLOSED, Code.PROTOCOL_ERROR))
def continuation_on_a_closed_stream_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "A recipient that observes violation of this rule MUST respond with a connection error of type
    PROTOCOL_ERROR"."""
    finish(client)
    client.send(continuation(1, TRAILERS))


@STREAMS.case(*CLOSED)
def data_on_a_stream_that_the_client_reset_is_an_error(client: Client) -> None:
    """5.1 MAY: "An endpoint MUST NOT send frames other than PRIORITY on a closed stream. An endpoint MAY treat receipt
    of any other type of frame on a closed stream as a connection error of type STREAM_CLOSED"; 6.1 asks for it."""
    client.send(headers(1, BLOCK), reset(1), data(1, MESSAGE, end=True))


@STREAMS.case(*CLOSED)
def headers_on_a_stream_that_the_client_reset_are_an_error(client: Client) -> None:
    """5.1 MAY: "An endpoint MAY treat receipt of any other type of frame on a closed stream as a connection error of
    type STREAM_CLOSED"."""
    client.send(headers(1, BLOCK), reset(1), headers(1, BLOCK, end=True))


@STREAMS.case(connection_error(Code.STREAM_CLOSED, Code.PROTOCOL_ERROR))
def continuation_on_a_stream_that_the_client_reset_ends_the_connection(client: Client) -> None:
    """6.10 MUST: "A recipient that observes violation of this rule MUST respond with a connection error of type
    PROTOCOL_ERROR"."""
    client.send(headers(1, BLOCK), reset(1), continuation(1, TRAILERS))


@STREAMS.case(Answered((3,)))
def window_update_and_rst_stream_on_a_closed_stream_are_ignored(client: Client) -> None:
    """6.9 MUST: "a receiver could receive a WINDOW_UPDATE frame on a stream in a "half-closed (remote)" or "closed"
    state. A receiver MUST NOT treat this as an error"."""
    finish(client)
    client.send(window_update(1, 100), reset(1), reset(1, Code.NO_ERROR))
    client.send(headers(3, BLOCK), data(3, MESSAGE, end=True))


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR))
def an_even_stream_ends_the_connection(client: Client) -> None:
    """5.1.1 MUST: "Streams initiated by a client MUST use odd-numbered stream identifiers"; "An endpoint that receives
    an unexpected stream identifier MUST respond with a connection error of type PROTOCOL_ERROR"."""
    client.send(headers(2, BLOCK))


@STREAMS.case(connection_error(Code.PROTOCOL_ERROR, Code.STREAM_CLOSED))
def a_stream_below_the_last_one_ends_the_connection(client: Client) -> None:
    """5.1.1 MUST: "The identifier of a newly established stream MUST be numerically greater than all streams that the
    initiating endpoint has opened or reserved"."""
    client.send(headers(5, BLOCK), data(5, MESSAGE, end=True), headers(3, BLOCK, end=True))


@STREAMS.case(Answered((2**31 - 1,)))
def the_last_stream_identifier_is_usable(client: Client) -> None:
    """5.1.1 EXAMPLE: "Streams are identified by an unsigned 31-bit integer"."""
    client.send(headers(2**31 - 1, BLOCK), data(2**31 - 1, MESSAGE, end=True))


@STREAMS.case(Answered(tuple(range(1, 60, 2))))
def interleaved_streams_are_all_answered(client: Client) -> None:
    """5 EXAMPLE: "A single HTTP/2 connection can contain multiple concurrently open streams, with either endpoint
    interleaving frames from multiple streams"."""
    streams = range(1, 60, 2)
    for stream in streams:
        client.send(headers(stream, BLOCK))
    for part in (MESSAGE[:3], MESSAGE[3:]):
        for stream in reversed(streams):
            client.send(data(stream, part, end=part == MESSAGE[3:]))


@STREAMS.case(Answered(), Closed())
def open_streams_are_finished_after_the_client_says_goaway(client: Client) -> None:
    """6.8 SHOULD: "Activity on streams numbered lower than or equal to the last stream identifier might still complete
    successfully"; the client's GOAWAY is about streams of the server."""
    client.send(headers(1, BLOCK), goaway(), data(1, MESSAGE, end=True))
    assert client.reply(1).ended


def limit_of_streams(client: Client) -> int:
    """The server's limit of concurrent streams; skips the case where it is none or too high to reach."""
    limit = client.received.settings.get(Setting.MAX_CONCURRENT_STREAMS)
    if limit is None or limit > MOST_STREAMS_TO_OPEN:
        pytest.skip(f"the server allows {limit} concurrent streams")
    return limit


@STREAMS.case(Alive(), connection_error(Code.PROTOCOL_ERROR))
def one_stream_too_many_is_refused_and_no_other(client: Client) -> None:
    """5.1.2 MUST: "An endpoint that receives a HEADERS frame that causes its advertised concurrent stream limit to be
    exceeded MUST treat this as a stream error of type PROTOCOL_ERROR or REFUSED_STREAM"."""
    limit = limit_of_streams(client)
    for stream in range(1, 2 * limit + 2, 2):
        client.send(headers(stream, BLOCK))
    client.settle()
    refused = client.received.replies.pop(2 * limit + 1, Reply())
    assert client.closed or refused.reset in (Code.REFUSED_STREAM, Code.PROTOCOL_ERROR)
    assert not any(reply.over for reply in client.received.replies.values())


@STREAMS.case(
    stream_error(Code.REFUSED_STREAM, Code.PROTOCOL_ERROR, stream=10**6 + 1), connection_error(Code.PROTOCOL_ERROR)
)
def a_closed_stream_makes_room_for_another(client: Client) -> None:
    """5.1.2 MUST: "Streams that are in the "open" state or in either of the "half-closed" states count toward the
    maximum number of streams"; others do not."""
    limit = limit_of_streams(client)
    for stream in range(1, 2 * limit, 2):
        client.send(headers(stream, BLOCK))
    client.send(data(1, MESSAGE, end=True))
    assert client.reply(1).ended
    client.send(headers(2 * limit + 1, BLOCK), data(2 * limit + 1, MESSAGE, end=True))
    assert client.reply(2 * limit + 1).ended
    client.send(reset(3), headers(2 * limit + 3, BLOCK), headers(2 * limit + 5, BLOCK))
    client.settle()
    assert not client.received.reply(2 * limit + 5).over
    client.send(headers(10**6 + 1, BLOCK))
