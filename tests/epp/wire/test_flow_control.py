"""Windows in both directions: bodies larger than all windows pass, and a reader that stops costs little memory."""

from __future__ import annotations

import pytest
from hyperframe.frame import DataFrame, Frame, WindowUpdateFrame

from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.floods import Flood, Rate
from epp.wire.http2.limits import Limits
from tests.epp.wire.peer import (
    ACK,
    DATA,
    END_STREAM,
    PADDED,
    PREFACE,
    REQUEST,
    SETTINGS,
    Peer,
    body,
    goaway,
    message,
    raw,
    resets,
    settings,
    window_update,
)

SMALL = Limits(stream_window_bytes=1000, connection_window_bytes=100_000)


def grants(frames: list[Frame], stream_id: int) -> int:
    return sum(f.window_increment for f in frames if isinstance(f, WindowUpdateFrame) and f.stream_id == stream_id)


def test_a_request_larger_than_every_window_gets_through() -> None:
    peer = Peer(limits=Limits(stream_window_bytes=1000, connection_window_bytes=65_535))
    peer.open(1, "/test.Echo/Quiet")
    data = message(b"x" * 300_000)
    stream_left, connection_left = 1000, 65_535
    while data:
        size = min(stream_left, connection_left, 700)
        assert size > 0, "the server left us without a window"
        frames = peer.send(raw(DATA, 0 if data[size:] else END_STREAM, 1, data[:size]))
        stream_left += grants(frames, 1) - size
        connection_left += grants(frames, 0) - size
        data = data[size:]
    assert peer.seen == ["300000 bytes", "half-closed"]


def test_an_answer_larger_than_every_window_gets_through_and_in_order() -> None:
    peer = Peer()
    peer.send(settings((4, 100)))
    peer.open(1)
    big = bytes(range(256)) * 1000
    sent = message(big)
    received = b""
    for start in range(0, len(sent), 16_000):
        received += body(peer.send(raw(DATA, 0, 1, sent[start : start + 16_000])))
    frames = peer.send(raw(DATA, END_STREAM, 1))
    for _ in range(10_000):
        received += body(frames)
        if any("END_STREAM" in f.flags for f in frames):
            break
        assert all(len(f.data) <= 5000 for f in frames if isinstance(f, DataFrame))
        frames = peer.send(window_update(1, 5000), window_update(0, 5000))
    assert received == sent
    assert peer.open_streams == 0


def test_data_beyond_the_streams_window_costs_the_stream() -> None:
    peer = Peer(limits=SMALL)
    frames = peer.send(peer.head(1), raw(DATA, 0, 1, bytes(1001)))
    assert resets(frames) == {1: ErrorCode.FLOW_CONTROL_ERROR}
    assert peer.alive


def test_data_beyond_the_connections_window_costs_the_connection() -> None:
    peer = Peer(limits=Limits(stream_window_bytes=200_000, connection_window_bytes=65_535))
    piece = raw(DATA, 0, 1, b"\0" * 16_384)
    peer.session.receive(peer.head(1), 0.0)
    for _ in range(4):  # in one read, before any grant can be sent
        peer.session.receive(piece, 0.0)
    assert goaway(peer.drain()) is ErrorCode.FLOW_CONTROL_ERROR


def test_until_our_settings_are_acknowledged_the_client_may_use_the_default_window() -> None:
    peer = Peer(limits=SMALL, greet=False)
    peer.send(PREFACE + settings(), peer.head(1, [*REQUEST[:2], (":path", "/test.Echo/Quiet"), *REQUEST[3:]]))
    assert resets(peer.send(raw(DATA, 0, 1, message(bytes(5_000))))) == {}
    peer.send(raw(SETTINGS, ACK, 0))
    assert resets(peer.send(peer.head(3), raw(DATA, 0, 3, bytes(1001)))) == {3: ErrorCode.FLOW_CONTROL_ERROR}


def test_padding_counts_against_the_windows_and_is_given_back() -> None:
    peer = Peer(limits=SMALL)
    peer.open(1, "/test.Echo/Quiet")
    granted = sum(
        grants(peer.send(raw(DATA, PADDED, 1, b"\xff" + bytes(255))), 1)  # nothing but padding
        for _ in range(10)
    )
    assert granted >= 2000


def test_grants_are_batched_to_half_a_window() -> None:
    peer = Peer(limits=SMALL)
    peer.open(1, "/test.Echo/Quiet")
    assert grants(peer.send(raw(DATA, 0, 1, message(bytes(494)))), 1) == 0
    assert grants(peer.send(raw(DATA, 0, 1, b"\0")), 1) == 500


def test_a_stream_that_reads_nothing_gets_no_more_window_until_it_reads() -> None:
    peer = Peer(limits=Limits(stream_window_bytes=10_000, send_high_water_bytes=20_000))
    peer.send(settings((4, 0)))
    peer.open(1)
    left, sent = 10_000, 0
    while left > 1005:
        left += grants(peer.send(raw(DATA, 0, 1, message(bytes(1000)))), 1) - 1005
        sent += 1005
    assert sent < 40_000, "the queue has a bound"
    frames = peer.send(window_update(1, 100_000))
    assert len(body(frames)) == sent
    assert grants(frames, 1) > 0


def test_a_stream_with_more_to_say_than_its_bound_is_reset_and_its_handler_cancelled() -> None:
    peer = Peer(limits=Limits(max_stream_queue_bytes=5_000))
    peer.send(settings((4, 0)))
    peer.open(1)
    frames = peer.send(raw(DATA, 0, 1, message(bytes(1000)) * 10))
    assert resets(frames) == {1: ErrorCode.ENHANCE_YOUR_CALM}
    assert peer.seen[-1] == "cancelled"
    assert peer.open_streams == 0
    assert peer.alive


def test_a_smaller_initial_window_makes_a_streams_window_negative_and_it_recovers() -> None:
    peer = Peer()
    peer.send(settings((4, 10)))
    peer.open(1)
    assert len(body(peer.send(raw(DATA, 0, 1, message(bytes(95)))))) == 10
    assert body(peer.send(settings((4, 5)))) == b""
    assert body(peer.send(window_update(1, 5))) == b""
    assert len(body(peer.send(window_update(1, 2)))) == 2
    assert len(body(peer.send(settings((4, 1_000))))) == 88


def test_our_frames_keep_to_the_clients_max_frame_size() -> None:
    peer = Peer()
    peer.send(settings((4, 1 << 20), (5, 20_000)), window_update(0, 1 << 20))
    peer.open(1)
    frames: list[Frame] = []
    for piece in (message(bytes(50_000))[i : i + 16_384] for i in range(0, 50_005, 16_384)):
        frames += peer.send(raw(DATA, 0, 1, piece))
    assert max(len(f.data) for f in frames if isinstance(f, DataFrame)) == 20_000


def test_waiting_streams_take_turns() -> None:
    peer = Peer()
    peer.send(settings((4, 1 << 20)))
    for stream_id in (1, 3):
        peer.open(stream_id)
        for _ in range(10):
            peer.send(raw(DATA, 0, stream_id, message(bytes(16_000))))
    frames = peer.send(window_update(0, 200_000))
    sizes = {i: len(body(frames, i)) for i in (1, 3)}
    assert abs(sizes[1] - sizes[3]) < 80_000
    assert min(sizes.values()) > 60_000


def test_data_waits_while_the_transport_is_full_and_control_frames_do_not() -> None:
    peer = Peer()
    peer.session.connection.pause(True)
    peer.open(1)
    assert body(peer.send(raw(DATA, 0, 1, message(b"hello")))) == b""
    assert peer.alive
    peer.session.connection.pause(False)
    assert body(peer.drain()) == message(b"hello")


def test_answers_that_are_never_let_out_are_dropped_in_time() -> None:
    peer = Peer(limits=Limits(stall_s=30, floods={**Limits().floods, Flood.STALLED: Rate(1, 0)}))
    peer.send(settings((4, 0)))
    peer.open(1)
    peer.send(raw(DATA, 0, 1, message(b"held back")))
    peer.session.drop_stalled(peer.now + 29)
    assert peer.drain() == []
    peer.session.drop_stalled(peer.now + 31)
    assert resets(peer.drain()) == {1: ErrorCode.CANCEL}
    assert peer.seen[-1] == "cancelled"
    peer.open(3)
    peer.send(raw(DATA, 0, 3, message(b"held back")))
    peer.session.drop_stalled(peer.now + 31)
    assert goaway(peer.drain()) is ErrorCode.ENHANCE_YOUR_CALM
    assert peer.counters.floods == {Flood.STALLED: 1}


@pytest.mark.parametrize("step", [1, 7])
def test_an_answer_let_out_in_tiny_steps_is_whole(step: int) -> None:
    peer = Peer()
    peer.send(settings((4, 0)))
    peer.open(1)
    peer.send(raw(DATA, END_STREAM, 1, message(b"a tiny window")))
    received = b""
    while peer.open_streams:
        received += body(peer.send(window_update(1, step)))
    assert received == message(b"a tiny window")
