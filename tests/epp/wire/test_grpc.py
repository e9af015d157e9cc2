"""The gRPC layer above the streams: messages, deadlines, statuses and refusals."""

from __future__ import annotations

import contextlib
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.wire.grpc import GrpcFault, MessageReader, parse_timeout
from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.limits import Limits
from epp.wire.service import Call, Status
from tests.epp.wire.peer import (
    DATA,
    ECHO,
    END_STREAM,
    HEADERS,
    REQUEST,
    Echo,
    Peer,
    body,
    message,
    raw,
    resets,
    rst,
    settings,
)

QUIET = "/test.Echo/Quiet"


def test_an_exchange_is_head_messages_and_trailers() -> None:
    peer = Peer()
    assert peer.open(1) == []
    head, first = peer.send(raw(DATA, 0, 1, message(b"one")))
    assert peer.fields(head) == {":status": "200", "content-type": "application/grpc"}
    assert first.data == message(b"one")
    second, trailers = peer.send(raw(DATA, END_STREAM, 1, message(b"two")))
    assert second.data == message(b"two")
    assert peer.fields(trailers) == {"grpc-status": "0"}
    assert "END_STREAM" in trailers.flags
    assert peer.open_streams == 0


def test_a_status_without_messages_is_one_block() -> None:
    peer = Peer()
    peer.open(1, QUIET)
    only, reset = peer.finish(Status.UNAVAILABLE, "50 % of café\n")
    assert peer.fields(only) == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-status": "14",
        "grpc-message": "50%20%25%20of%20caf%C3%A9%0A",
    }
    assert reset.error_code == ErrorCode.NO_ERROR, "the client had not finished: it may stop now"


def test_a_client_that_goes_on_after_our_trailers_is_ignored() -> None:
    peer = Peer()
    peer.open(1, QUIET)
    peer.finish()
    assert peer.send(raw(DATA, 0, 1, message(b"late")), raw(DATA, END_STREAM, 1)) == []
    assert peer.seen == []


@pytest.mark.parametrize(
    ("extra", "path", "status"),
    [
        ((), "/nobody/Home", Status.UNIMPLEMENTED),
        ((("grpc-timeout", "5 minutes"),), ECHO, Status.INTERNAL),
        ((("grpc-timeout", "123456789S"),), ECHO, Status.INTERNAL),
    ],
)
def test_a_call_that_cannot_be_served_says_why(extra: tuple[tuple[str, str], ...], path: str, status: Status) -> None:
    peer = Peer()
    (only,) = peer.open(1, path, *extra, end=True)
    assert peer.fields(only)["grpc-status"] == str(int(status))
    assert peer.fields(only) is not None
    assert peer.open_streams == 0


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("content-type", "application/json", "415"),
        ("content-type", "application/grpcfoo", "415"),
        (":method", "GET", "405"),
    ],
)
def test_what_is_not_grpc_gets_a_plain_http_answer_with_a_body(name: str, value: str, status: str) -> None:
    peer = Peer()
    head, text = peer.send(peer.head(1, [(k, value if k == name else v) for k, v in REQUEST], end=True))
    assert peer.fields(head)[":status"] == status
    assert b"gRPC" in text.data
    assert "END_STREAM" in text.flags


@pytest.mark.parametrize("content_type", ["application/grpc", "text/html"])
def test_the_plain_answer_to_head_is_its_head_alone(content_type: str) -> None:
    peer = Peer()
    asked = {**dict(REQUEST), ":method": "HEAD", "content-type": content_type}
    (only,) = peer.send(peer.head(1, list(asked.items()), end=True))
    assert int(peer.fields(only)["content-length"]) > 0, "what GET would have said"
    assert "END_STREAM" in only.flags
    assert peer.open_streams == 0


def test_the_plain_answer_keeps_to_the_windows_too() -> None:
    peer = Peer()
    peer.send(settings((4, 1)))
    _, first = peer.send(peer.head(1, REQUEST[:3], end=True))
    assert len(first.data) == 1


@pytest.mark.parametrize("content_type", ["application/grpc", "application/grpc+proto", "application/grpc;v=1"])
def test_every_grpc_content_type_is_served(content_type: str) -> None:
    peer = Peer()
    peer.send(peer.head(1, [(k, content_type if k == "content-type" else v) for k, v in REQUEST]))
    assert body(peer.send(raw(DATA, 0, 1, message(b"x")))) == message(b"x")


def status_of(peer: Peer, data: bytes, *extra: tuple[str, str], end: bool = False) -> dict[str, str]:
    peer.open(1, QUIET, *extra)
    return peer.fields(peer.send(raw(DATA, END_STREAM if end else 0, 1, data))[0])


def test_a_message_above_the_limit_is_refused_by_its_prefix_alone() -> None:
    peer = Peer(limits=Limits(max_receive_message_bytes=1000))
    fields = status_of(peer, message(bytes(1001))[:5])
    assert fields["grpc-status"] == "8"
    assert "1001" in fields["grpc-message"]
    assert "1000" in fields["grpc-message"]
    assert peer.seen == ["cancelled"]


def test_a_message_of_exactly_the_limit_is_served() -> None:
    peer = Peer(limits=Limits(max_receive_message_bytes=1000))
    peer.open(1, QUIET)
    peer.send(raw(DATA, 0, 1, message(bytes(1000))))
    assert peer.seen == ["1000 bytes"]


def test_a_compressed_message_is_refused_with_what_we_accept() -> None:
    fields = status_of(Peer(), message(b"zip", flag=1), ("grpc-encoding", "gzip"))
    assert fields["grpc-status"] == "12"
    assert fields["grpc-accept-encoding"] == "identity"


def test_an_uncompressed_message_of_a_client_that_could_compress_is_served() -> None:
    peer = Peer()
    peer.open(1, ECHO, ("grpc-encoding", "gzip"))
    assert body(peer.send(raw(DATA, 0, 1, message(b"plain")))) == message(b"plain")


@pytest.mark.parametrize("flag", [1, 2, 255])
def test_a_flag_that_nothing_explains_is_internal(flag: int) -> None:
    assert status_of(Peer(), message(b"x", flag=flag))["grpc-status"] == "13"


def test_a_request_that_ends_inside_a_message_is_internal() -> None:
    peer = Peer()
    assert status_of(peer, message(b"whole")[:-1], end=True)["grpc-status"] == "13"
    assert peer.seen == ["cancelled"]


def test_messages_before_a_broken_one_are_delivered() -> None:
    peer = Peer()
    status_of(peer, message(b"good") + message(b"bad", flag=9))
    assert peer.seen == ["4 bytes", "cancelled"]


def test_incomplete_messages_have_a_bound_together() -> None:
    peer = Peer(limits=Limits(max_assembly_bytes=10_000))
    for stream_id in (1, 3, 5):
        peer.open(stream_id, QUIET)
        frames = peer.send(raw(DATA, 0, stream_id, message(bytes(8_000))[:4_000]))
    assert peer.fields(frames[0])["grpc-status"] == "8"
    assert peer.send(raw(DATA, 0, 1, bytes(4_005))) == [], "the others go on"
    assert peer.seen == ["cancelled", "8000 bytes"]


def test_trailers_of_a_request_end_it() -> None:
    peer = Peer()
    peer.open(1)
    peer.send(peer.head(1, [("x-checksum", "1")], end=True))
    assert peer.seen == ["half-closed"]


def test_a_deadline_cancels_the_handler_and_tells_the_client() -> None:
    peer = Peer()
    peer.open(1, QUIET, ("grpc-timeout", "1500m"))
    assert peer.session.deadlines.next == pytest.approx(peer.now + 1.5)
    peer.session.expire(peer.now + 1.4)
    assert peer.drain() == []
    peer.session.expire(peer.now + 1.6)
    only, _reset = peer.drain()
    assert peer.fields(only)["grpc-status"] == "4"
    assert peer.seen == ["cancelled"]
    assert peer.counters.deadlines_exceeded == 1


def test_a_deadline_behind_unread_bytes_resets_the_stream() -> None:
    peer = Peer()
    peer.send(settings((4, 0)))
    peer.open(1, ECHO, ("grpc-timeout", "1S"))
    peer.send(raw(DATA, 0, 1, message(b"unread")))
    peer.session.expire(peer.now + 2)
    assert resets(peer.drain()) == {1: ErrorCode.CANCEL}
    assert peer.open_streams == 0


def test_deadlines_of_calls_that_are_over_are_forgotten() -> None:
    peer = Peer()
    for stream_id in range(1, 10_001, 2):
        peer.open(stream_id, ECHO, ("grpc-timeout", "99H"), end=True)
    assert len(peer.session.deadlines) < 1100


@pytest.mark.parametrize(
    ("text", "seconds"), [("1H", 3600), ("2M", 120), ("3S", 3), ("4m", 0.004), ("5u", 5e-6), ("6n", 6e-9), ("0S", 0)]
)
def test_timeouts_have_six_units(text: str, seconds: float) -> None:
    assert parse_timeout(text) == pytest.approx(seconds)


@given(st.text(max_size=12))
def test_a_timeout_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(GrpcFault):
        assert parse_timeout(text) >= 0


def test_a_reset_cancels_the_handler_once_and_leaves_nothing() -> None:
    peer = Peer()
    peer.open(1, QUIET)
    assert peer.send(rst(1)) == []
    assert peer.seen == ["cancelled"]
    assert peer.finish() == []
    peer.calls[0].send(b"nobody listens")
    assert peer.drain() == []
    assert peer.open_streams == 0


def test_a_lost_connection_cancels_every_call() -> None:
    peer = Peer()
    peer.open(1, QUIET)
    peer.open(3, QUIET)
    peer.session.end()
    assert peer.seen == ["cancelled", "cancelled"]
    assert peer.open_streams == 0


class Broken(Echo):
    """Raises in the method that its message names."""

    def __init__(self, call: Call, seen: list[str]) -> None:
        super().__init__(call, seen)
        if any(k == "break" for k, _ in call.metadata):
            raise RuntimeError("in the factory")

    def received(self, message: bytes) -> None:
        raise RuntimeError("in received")

    def half_closed(self) -> None:
        raise RuntimeError("in half_closed")

    def cancelled(self) -> None:
        raise RuntimeError("in cancelled")


@pytest.mark.parametrize("where", ["in the factory", "in received", "in half_closed"])
def test_a_handler_that_raises_fails_its_call_only(where: str, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    peer = Peer(methods={"/test.Broken/Call": lambda call: Broken(call, seen), ECHO: lambda call: Echo(call, seen)})
    peer.open(1)
    extra = [("break", "now")] if where == "in the factory" else []
    frames = peer.open(3, "/test.Broken/Call", *extra, end=where == "in half_closed")
    if where == "in received":
        frames = peer.send(raw(DATA, 0, 3, message(b"x")))
    fields = peer.fields(frames[0])
    assert fields["grpc-status"] == "13"
    assert where not in fields["grpc-message"], "what went wrong is ours to know"
    assert where in caplog.text
    assert peer.counters.handler_errors >= 1
    assert body(peer.send(raw(DATA, 0, 1, message(b"fine")))) == message(b"fine")


def test_binary_metadata_stays_in_base64_and_protocol_fields_are_left_out() -> None:
    peer = Peer()
    peer.open(1, ECHO, ("trace-bin", "AQID"), ("grpc-timeout", "1S"), ("user-agent", "test"))
    assert list(peer.metadata[0]) == [("trace-bin", "AQID"), ("user-agent", "test")]
    assert peer.calls[0].peer == "192.0.2.1:5"


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_messages_come_out_whole_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(message(b) for b in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = MessageReader(100, compressed=False)
    got: list[bytes] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += reader.feed(stream[start:stop])
    assert got == bodies
    assert reader.held_bytes == 0
    assert reader.fault is None


def test_a_message_in_one_byte_pieces_is_not_joined_at_every_piece() -> None:
    reader = MessageReader(1 << 20, compressed=False)
    stream = message(bytes(100_000))
    for i in range(len(stream) - 1):
        assert reader.feed(stream[i : i + 1]) == []
    assert reader.feed(stream[-1:]) == [bytes(100_000)]


def test_a_finished_call_leaves_nothing_for_the_garbage_collector() -> None:
    peer = Peer(methods={ECHO: lambda call: Echo(call, [])})
    peer.open(1, end=True)
    gc.collect()
    gc.disable()
    try:
        for stream_id in range(3, 203, 4):
            peer.session.receive(peer.head(stream_id) + raw(DATA, END_STREAM, stream_id, message(b"x")), peer.now)
            peer.session.receive(peer.head(stream_id + 2) + rst(stream_id + 2), peer.now)
            while peer.session.output(peer.now):
                pass
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_bytes_of_a_call_that_finished_early_are_not_counted_as_held() -> None:
    peer = Peer(limits=Limits(max_assembly_bytes=10_000))
    for stream_id in range(1, 41, 2):
        peer.open(stream_id, QUIET)
        peer.send(raw(DATA, 0, stream_id, message(bytes(8_000))[:4_000]))
        assert peer.fields(peer.finish()[0])["grpc-status"] == "0"


def test_a_long_status_message_is_cut_to_what_clients_take() -> None:
    peer = Peer()
    peer.open(1, QUIET)
    only, _reset = peer.finish(Status.INTERNAL, "x" * 1000 + "é" * 5000)
    assert only.type == HEADERS
    assert peer.fields(only)["grpc-message"] == "x" * 1000 + "%C3%A9" * 857, "the last whole one below 6 KiB"
