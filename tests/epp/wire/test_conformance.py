"""The rules of RFC 9113 by section: which frames of a client are faults, and what each fault ends."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.limits import Limits
from tests.epp.wire.peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    REQUEST,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    body,
    goaway,
    is_ack,
    message,
    raw,
    resets,
    rst,
    settings,
    window_update,
)

E = ErrorCode
P = ErrorCode.PROTOCOL_ERROR
Case = Callable[[Peer], bytes]
MAX = 2**31 - 1


def weight(parent: int) -> bytes:
    return struct.pack(">IB", parent, 15)


def opened(peer: Peer, stream_id: int = 1) -> bytes:
    return peer.head(stream_id)


def begun(peer: Peer) -> bytes:
    """Return a header block that has not ended."""
    return raw(HEADERS, 0, 1, peer.block(REQUEST))


def coded(block: bytes) -> bytes:
    return raw(HEADERS, END_HEADERS, 1, block)


def ended(peer: Peer, stream_id: int = 1) -> bytes:
    """Return a request that both sides have ended."""
    return peer.head(stream_id, end=True)


# What ends the connection: section, bytes after the handshake, code of the GOAWAY.
CONNECTION_ERRORS: dict[str, tuple[Case, ErrorCode]] = {
    "4.2 frame above our MAX_FRAME_SIZE": (lambda p: opened(p) + raw(DATA, 0, 1, bytes(16_385)), E.FRAME_SIZE_ERROR),
    "4.2 oversized frame, by its header alone": (lambda p: b"\xff\xff\xff\x00\x00" + bytes(4), E.FRAME_SIZE_ERROR),
    "4.3 undecodable block": (lambda p: coded(b"\xff\xff\xff\xff\xff\xff"), E.COMPRESSION_ERROR),
    "4.3 undecodable block on a closed stream": (
        lambda p: opened(p) + rst(1) + coded(b"\xc8"),
        E.COMPRESSION_ERROR,
    ),
    "4.3 truncated block": (lambda p: coded(b"\x00\x05ab"), E.COMPRESSION_ERROR),
    "4.3 index zero": (lambda p: coded(b"\x80"), E.COMPRESSION_ERROR),
    "4.3 table size above ours": (lambda p: coded(b"\x3f\xe2\x1f"), E.COMPRESSION_ERROR),
    "4.3 table size after a field": (lambda p: coded(b"\x82\x20"), E.COMPRESSION_ERROR),
    "4.3 Huffman padding of zeros": (lambda p: coded(b"\x00\x01x\x81\x10"), E.COMPRESSION_ERROR),
    "4.3 frame inside a header block": (lambda p: begun(p) + raw(PING, 0, 0, bytes(8)), P),
    "4.3 unknown frame inside a header block": (lambda p: begun(p) + raw(0xFA, 0, 1), P),
    "4.3 DATA inside a header block": (lambda p: begun(p) + raw(DATA, 0, 1), P),
    "4.3 other stream inside a header block": (lambda p: begun(p) + p.head(3), P),
    "5.1 DATA on an idle stream": (lambda p: raw(DATA, 0, 1, b"x"), P),
    "5.1 RST_STREAM on an idle stream": (lambda p: rst(1), P),
    "5.1 WINDOW_UPDATE on an idle stream": (lambda p: window_update(1, 1), P),
    "5.1 RST_STREAM on an even stream": (lambda p: opened(p, 3) + rst(2), P),
    "5.1 WINDOW_UPDATE on an even stream": (lambda p: opened(p, 3) + window_update(2, 1), P),
    "5.1 WINDOW_UPDATE of 0 on an even stream": (lambda p: opened(p, 3) + window_update(2, 0), P),
    "5.1 DATA on an even stream": (lambda p: opened(p, 3) + raw(DATA, 0, 2, b"x"), P),
    "5.1 HEADERS on an even stream": (lambda p: opened(p, 3) + opened(p, 2), P),
    "5.1 short PRIORITY on an even stream": (lambda p: opened(p, 3) + raw(PRIORITY, 0, 2, b"abc"), E.FRAME_SIZE_ERROR),
    "5.1 CONTINUATION on an idle stream": (lambda p: raw(CONTINUATION, END_HEADERS, 1, b""), P),
    "5.1 DATA after both sides ended": (lambda p: ended(p) + raw(DATA, 0, 1, b"x"), E.STREAM_CLOSED),
    "5.1 HEADERS after both sides ended": (lambda p: ended(p) + opened(p), E.STREAM_CLOSED),
    "5.1 CONTINUATION after both sides ended": (lambda p: ended(p) + raw(CONTINUATION, 4, 1), P),
    "5.1.1 even stream id": (lambda p: opened(p, 2), P),
    "5.1.1 stream id below one that was opened": (lambda p: opened(p, 5) + opened(p, 3), P),
    "5.1.1 DATA on a skipped stream": (lambda p: opened(p, 5) + raw(DATA, 0, 3, b"x"), P),
    "6.1 DATA on stream 0": (lambda p: raw(DATA, 0, 0, b"x"), P),
    "6.1 padding as long as the payload": (lambda p: opened(p) + raw(DATA, PADDED, 1, b"\x03abc"[:3]), P),
    "6.1 padded and empty": (lambda p: opened(p) + raw(DATA, PADDED, 1), E.FRAME_SIZE_ERROR),
    "6.2 HEADERS on stream 0": (lambda p: opened(p, 0), P),
    "6.2 padding longer than the block": (lambda p: raw(HEADERS, END_HEADERS | PADDED, 1, b"\xffab"), P),
    "6.2 no room for the priority": (lambda p: raw(HEADERS, END_HEADERS | PRIORITIZED, 1, b"\x00"), E.FRAME_SIZE_ERROR),
    "6.3 PRIORITY on stream 0": (lambda p: raw(PRIORITY, 0, 0, weight(0)), P),
    "6.3 short PRIORITY on an idle stream": (lambda p: raw(PRIORITY, 0, 9, b"abc"), E.FRAME_SIZE_ERROR),
    "6.4 RST_STREAM on stream 0": (lambda p: rst(0), P),
    "6.4 short RST_STREAM": (lambda p: opened(p) + raw(RST_STREAM, 0, 1, b"abc"), E.FRAME_SIZE_ERROR),
    "6.5 SETTINGS ACK with a payload": (lambda p: raw(SETTINGS, ACK, 0, bytes(6)), E.FRAME_SIZE_ERROR),
    "6.5 SETTINGS on a stream": (lambda p: raw(SETTINGS, 0, 1), P),
    "6.5 SETTINGS of five bytes": (lambda p: raw(SETTINGS, 0, 0, bytes(5)), E.FRAME_SIZE_ERROR),
    "6.5.2 ENABLE_PUSH of 2": (lambda p: settings((2, 2)), P),
    "6.5.2 INITIAL_WINDOW_SIZE of 2^31": (lambda p: settings((4, 2**31)), E.FLOW_CONTROL_ERROR),
    "6.5.2 MAX_FRAME_SIZE of 16,383": (lambda p: settings((5, 16_383)), P),
    "6.5.2 MAX_FRAME_SIZE of 2^24": (lambda p: settings((5, 2**24)), P),
    "6.6 PUSH_PROMISE from a client": (lambda p: opened(p) + raw(PUSH_PROMISE, 4, 1, bytes(4)), P),
    "6.7 PING on a stream": (lambda p: raw(PING, 0, 1, bytes(8)), P),
    "6.7 PING of seven bytes": (lambda p: raw(PING, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR),
    "6.8 GOAWAY on a stream": (lambda p: raw(GOAWAY, 0, 1, bytes(8)), P),
    "6.8 GOAWAY of seven bytes": (lambda p: raw(GOAWAY, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR),
    "6.9 WINDOW_UPDATE of 0 on the connection": (lambda p: window_update(0, 0), P),
    "6.9 WINDOW_UPDATE of three bytes": (lambda p: raw(WINDOW_UPDATE, 0, 0, bytes(3)), E.FRAME_SIZE_ERROR),
    "6.9.1 connection window above 2^31-1": (lambda p: window_update(0, MAX), E.FLOW_CONTROL_ERROR),
    "6.9.2 INITIAL_WINDOW_SIZE lifts a window above 2^31-1": (
        lambda p: p.head(1, QUIET) + window_update(1, MAX - 65_535) + settings((4, 65_536)),
        E.FLOW_CONTROL_ERROR,
    ),
    "6.10 CONTINUATION without HEADERS": (lambda p: opened(p) + raw(CONTINUATION, END_HEADERS, 1), P),
    "6.10 CONTINUATION after END_HEADERS": (lambda p: opened(p) + raw(CONTINUATION, END_HEADERS, 1, b"\x82"), P),
    "6.10 CONTINUATION on stream 0": (lambda p: begun(p) + raw(CONTINUATION, 4, 0), P),
    "6.10 CONTINUATION on another stream": (lambda p: begun(p) + raw(CONTINUATION, 4, 3), P),
}  # fmt: skip


QUIET = [(k, "/test.Echo/Quiet" if k == ":path" else v) for k, v in REQUEST]


@pytest.mark.parametrize("case", CONNECTION_ERRORS)
def test_a_connection_error_ends_with_its_goaway(case: str) -> None:
    build, code = CONNECTION_ERRORS[case]
    peer = Peer()
    assert goaway(peer.send(build(peer))) is code
    assert peer.open_streams == 0
    assert peer.send(raw(PING, 0, 0, bytes(8))) == []


def without(name: str) -> list[tuple[str, str]]:
    return [(k, v) for k, v in REQUEST if k != name]


def changed(name: str, value: str) -> list[tuple[str, str]]:
    return [(k, value if k == name else v) for k, v in REQUEST]


def trailers(peer: Peer, *pairs: tuple[str, str], end: bool = True) -> bytes:
    return peer.head(1, QUIET) + peer.head(1, pairs, end=end)


def sized(peer: Peer, length: str, *, end: bool = False) -> bytes:
    return peer.head(1, [*QUIET, ("content-length", length)], end=end)


# What ends stream 1 only.
STREAM_ERRORS: dict[str, tuple[Case, ErrorCode]] = {
    "5.1 DATA after END_STREAM": (lambda p: p.head(1, QUIET, end=True) + raw(DATA, 0, 1, b"x"), E.STREAM_CLOSED),
    "5.1 HEADERS after END_STREAM": (lambda p: p.head(1, QUIET, end=True) + p.head(1, QUIET), E.STREAM_CLOSED),
    "5.1 DATA after RST_STREAM": (lambda p: opened(p) + rst(1) + raw(DATA, 0, 1, b"x"), E.STREAM_CLOSED),
    "5.1 HEADERS after RST_STREAM": (lambda p: opened(p) + rst(1) + opened(p), E.STREAM_CLOSED),
    "5.3.1 HEADERS that depend on themselves": (
        lambda p: raw(HEADERS, END_HEADERS | PRIORITIZED, 1, weight(1) + p.block(QUIET)), P),
    "5.3.1 PRIORITY that depends on itself": (lambda p: opened(p) + raw(PRIORITY, 0, 1, weight(1)), P),
    "6.3 PRIORITY of four bytes": (lambda p: opened(p) + raw(PRIORITY, 0, 1, bytes(4)), E.FRAME_SIZE_ERROR),
    "6.9 WINDOW_UPDATE of 0": (lambda p: opened(p) + window_update(1, 0), P),
    "6.9.1 stream window above 2^31-1": (lambda p: opened(p) + window_update(1, MAX), E.FLOW_CONTROL_ERROR),
    "8.1 trailers without END_STREAM": (lambda p: trailers(p, ("x", "y"), end=False), P),
    "8.1 pseudo-field in trailers": (lambda p: trailers(p, (":path", "/")), P),
    "8.1.1 more DATA than content-length": (lambda p: sized(p, "3") + raw(DATA, 0, 1, b"four"), P),
    "8.1.1 less DATA than content-length": (lambda p: sized(p, "3") + raw(DATA, END_STREAM, 1, b"12"), P),
    "8.1.1 END_STREAM in HEADERS with content-length": (lambda p: sized(p, "3", end=True), P),
    "8.1.1 trailers before content-length is reached": (lambda p: sized(p, "3") + p.head(1, [("x", "y")], end=True), P),
    "8.1.1 content-length that is no number": (lambda p: sized(p, "+3"), P),
    "8.1.1 two content-lengths that differ": (
        lambda p: p.head(1, [*QUIET, ("content-length", "3"), ("content-length", "4")]), P),
    "8.2.1 upper-case name": (lambda p: raw(HEADERS, 4, 1, p.block(REQUEST) + b"\x00\x01X\x01y"), P),
    "8.2.1 upper-case name in trailers": (
        lambda p: p.head(1, QUIET) + raw(HEADERS, END_HEADERS | END_STREAM, 1, b"\x00\x01X\x01y"), P),
    "8.2.1 space in a name": (lambda p: p.head(1, [*REQUEST, ("a b", "c")]), P),
    "8.2.1 empty name": (lambda p: raw(HEADERS, 4, 1, p.block(REQUEST) + b"\x00\x00\x01y"), P),
    "8.2.1 colon inside a name": (lambda p: p.head(1, [*REQUEST, ("a:b", "c")]), P),
    "8.2.1 NUL in a value": (lambda p: p.head(1, [*REQUEST, ("a", "b\0c")]), P),
    "8.2.1 line feed in a value": (lambda p: p.head(1, [*REQUEST, ("a", "b\nc")]), P),
    "8.2.1 carriage return in a value": (lambda p: p.head(1, [*REQUEST, ("a", "b\rc")]), P),
    "8.2.1 space before a value": (lambda p: p.head(1, [*REQUEST, ("a", " b")]), P),
    "8.2.1 tab after a value": (lambda p: p.head(1, [*REQUEST, ("a", "b\t")]), P),
    "8.2.2 connection": (lambda p: p.head(1, [*REQUEST, ("connection", "close")]), P),
    "8.2.2 transfer-encoding": (lambda p: p.head(1, [*REQUEST, ("transfer-encoding", "chunked")]), P),
    "8.2.2 keep-alive": (lambda p: p.head(1, [*REQUEST, ("keep-alive", "1")]), P),
    "8.2.2 proxy-connection": (lambda p: p.head(1, [*REQUEST, ("proxy-connection", "x")]), P),
    "8.2.2 upgrade": (lambda p: p.head(1, [*REQUEST, ("upgrade", "h2c")]), P),
    "8.2.2 te other than trailers": (lambda p: p.head(1, changed("te", "gzip")), P),
    "8.3 unknown pseudo-field": (lambda p: p.head(1, [(":test", "x"), *REQUEST]), P),
    "8.3 :status in a request": (lambda p: p.head(1, [(":status", "200"), *REQUEST]), P),
    "8.3 pseudo-field after a regular one": (lambda p: p.head(1, [*without(":path"), (":path", "/")]), P),
    "8.3.1 no :method": (lambda p: p.head(1, without(":method")), P),
    "8.3.1 no :scheme": (lambda p: p.head(1, without(":scheme")), P),
    "8.3.1 no :path": (lambda p: p.head(1, without(":path")), P),
    "8.3.1 empty :path": (lambda p: p.head(1, changed(":path", "")), P),
    "8.3.1 :path without a slash": (lambda p: p.head(1, changed(":path", "x")), P),
    "8.3.1 two :methods": (lambda p: p.head(1, [(":method", "POST"), *REQUEST]), P),
    "8.3.1 two :paths": (lambda p: p.head(1, [(":path", "/"), *REQUEST]), P),
    "8.3.1 host that differs from :authority": (lambda p: p.head(1, [*REQUEST, ("host", "elsewhere")]), P),
    "8.5 CONNECT with a path": (lambda p: p.head(1, changed(":method", "CONNECT")), P),
}  # fmt: skip


@pytest.mark.parametrize("case", STREAM_ERRORS)
def test_a_stream_error_costs_its_stream_only(case: str) -> None:
    build, code = STREAM_ERRORS[case]
    peer = Peer()
    frames = peer.send(build(peer))
    assert resets(frames) == {1: code}
    assert goaway(frames) is None
    assert peer.open_streams == 0
    assert body(peer.send(peer.head(101), raw(DATA, END_STREAM, 101, message(b"other"))), 101) == message(b"other")


# What is allowed, and leaves stream 1 to be served.
ALLOWED: dict[str, Case] = {
    "4.1 unknown frame type": lambda p: opened(p) + raw(0xFA, 0xFF, 1, b"whatever"),
    "4.1 unknown flags": lambda p: opened(p) + raw(PING, 0xFE, 0, bytes(8)),
    "4.1 reserved bit of the stream id": lambda p: opened(p, 1) + raw(DATA, 0, 1 | 1 << 31, message(b"1")),
    "5.1 PRIORITY on an idle stream": lambda p: raw(PRIORITY, 0, 7, weight(0)) + opened(p),
    "5.1 PRIORITY on a closed stream": lambda p: ended(p) + raw(PRIORITY, 0, 1, weight(0)) + opened(p, 3),
    "5.1 WINDOW_UPDATE on a closed stream": lambda p: ended(p) + window_update(1, 5) + opened(p, 3),
    "5.1 RST_STREAM on a closed stream": lambda p: ended(p) + rst(1) + opened(p, 3),
    "5.1 WINDOW_UPDATE after END_STREAM": lambda p: p.head(1, QUIET, end=True) + window_update(1, 5),
    "5.1 PRIORITY after END_STREAM": lambda p: p.head(1, QUIET, end=True) + raw(PRIORITY, 0, 1, weight(0)),
    "6.1 padded DATA": lambda p: opened(p) + raw(DATA, PADDED, 1, b"\x04" + message(b"padded") + bytes(4)),
    "6.1 padding only": lambda p: opened(p) + raw(DATA, PADDED, 1, b"\x00"),
    "6.2 padded HEADERS with priority": lambda p: raw(
        HEADERS, END_HEADERS | PADDED | PRIORITIZED, 1, b"\x03" + weight(0) + p.block(REQUEST) + bytes(3)),
    "6.5.2 unknown setting": lambda p: settings((0xFF, 1)) + opened(p),
    "6.5.2 all settings": lambda p: settings((1, 0), (2, 0), (3, 0), (4, 0), (5, 2**24 - 1), (6, 0)) + opened(p),
    "6.5.3 a second ACK": lambda p: raw(SETTINGS, ACK, 0) + opened(p),
    "6.8 GOAWAY": lambda p: raw(GOAWAY, 0, 0, bytes(8) + b"bye") + opened(p),
    "6.10 block in one-byte pieces": lambda p: pieces(p.block(REQUEST), 1),
    "6.10 empty CONTINUATIONs": lambda p: raw(HEADERS, 0, 1) + raw(CONTINUATION, 0, 1)
    + raw(CONTINUATION, END_HEADERS, 1, p.block(REQUEST)),
    "8.1.1 two equal content-lengths": lambda p: p.head(1, [*QUIET, ("content-length", "0"), ("content-length", "0")]),
    "8.2.1 empty value": lambda p: p.head(1, [*REQUEST, ("empty", "")]),
    "8.3.1 host that equals :authority": lambda p: p.head(1, [*REQUEST, ("host", "tierwise")]),
    "8.3.1 no :authority": lambda p: p.head(1, without(":authority")),
}  # fmt: skip


def pieces(block: bytes, size: int) -> bytes:
    parts = [block[i : i + size] for i in range(0, len(block), size)]
    rest = b"".join(raw(CONTINUATION, 0, 1, part) for part in parts[1:-1])
    return raw(HEADERS, 0, 1, parts[0]) + rest + raw(CONTINUATION, END_HEADERS, 1, parts[-1])


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_allowed_is_served(case: str) -> None:
    peer = Peer()
    frames = peer.send(ALLOWED[case](peer))
    assert goaway(frames) is None
    assert not resets(frames)
    assert peer.open_streams == 1
    assert peer.alive


@pytest.mark.parametrize(
    "opening",
    {
        "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "a wrong preface": b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + settings(),
        "one wrong byte": b"X",
        "no SETTINGS first": PREFACE + raw(PING, 0, 0, bytes(8)),
        "an ACK first": PREFACE + raw(SETTINGS, ACK, 0),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_bad_opening_is_a_protocol_error(opening: tuple[str, bytes]) -> None:
    assert goaway(Peer(greet=False).send(opening[1])) is P


def test_the_server_speaks_first_and_acknowledges_settings_in_order() -> None:
    peer = Peer(greet=False)
    assert [f.type for f in peer.greeting] == [SETTINGS, WINDOW_UPDATE]
    frames = peer.send(PREFACE + settings((4, 1)) + settings((4, 2)))
    assert [is_ack(f) for f in frames] == [True, True]


def test_a_ping_is_answered_with_its_payload_and_an_answer_is_not() -> None:
    peer = Peer()
    (pong,) = peer.send(raw(PING, 0, 0, b"12345678"))
    assert (pong.opaque_data, "ACK" in pong.flags) == (b"12345678", True)
    assert peer.send(raw(PING, ACK, 0, b"12345678")) == []


def test_streams_above_the_limit_are_refused_and_room_is_made_by_ending_one() -> None:
    peer = Peer(limits=Limits(max_concurrent_streams=2))
    assert resets(peer.send(peer.head(1), peer.head(3), peer.head(5))) == {5: E.REFUSED_STREAM}
    assert peer.send(rst(1), peer.head(7)) == []
    assert peer.open_streams == 2
    assert peer.counters.refused_streams == 1


def test_late_frames_on_a_stream_that_we_reset_are_ignored_but_counted_and_decoded() -> None:
    peer = Peer()
    assert resets(peer.send(peer.head(1, [*REQUEST, ("connection", "close")]))) == {1: P}
    late = raw(DATA, 0, 1, b"late") + peer.head(1, [("new-in-table", "value")], end=True) + window_update(1, 0)
    assert peer.send(late) == []
    peer.send(peer.head(3, [*REQUEST, ("new-in-table", "value")]))
    assert ("new-in-table", "value") in peer.metadata[-1]


def test_frames_on_a_stream_that_ended_long_ago_cost_a_stream_error_at_most() -> None:
    peer = Peer()
    for stream_id in range(1, 8_001, 2):
        peer.send(peer.head(stream_id, end=True))
    assert resets(peer.send(raw(DATA, 0, 1, b"x"))) == {1: E.STREAM_CLOSED}
    assert goaway(peer.send(raw(DATA, 0, 7_999, b"x"))) is E.STREAM_CLOSED


def test_our_answers_never_use_the_clients_header_table() -> None:
    peer = Peer()
    frames = peer.open(1, end=True)
    assert frames[0].data[:1] == b"\x20", "the first block turns the table off"
    peer.fields(frames[0])
    assert peer.decoder.header_table_size == 0
    peer.decoder.max_allowed_table_size = 0
    peer.send(settings((1, 0)))
    (head,) = peer.open(3, end=True)
    assert peer.fields(head)["grpc-status"] == "0"


def test_a_header_list_above_the_limit_gets_431_and_the_connection_goes_on() -> None:
    peer = Peer()
    head, *rest = peer.open(1, "/test.Echo/Both", *((f"x-{i}", "v" * 1000) for i in range(17)))
    assert peer.fields(head)[":status"] == "431"
    assert resets(rest) == {1: E.NO_ERROR}
    assert peer.alive
