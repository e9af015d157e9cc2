"""Floods end the connection, and the normal traffic of a proxy does not."""

from __future__ import annotations

import pytest

from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.floods import Flood
from epp.wire.http2.limits import Limits
from tests.epp.wire.peer import (
    ACK,
    CONTINUATION,
    DATA,
    ECHO,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PRIORITY,
    REQUEST,
    SETTINGS,
    Peer,
    body,
    goaway,
    message,
    raw,
    resets,
    rst,
    settings,
    window_update,
)

CALM = ErrorCode.ENHANCE_YOUR_CALM
MANY = 200_000


def attack(peer: Peer, what: bytes, times: int, batch: int = 1000) -> int:
    """Send ``what`` until the connection ends; returns how often, to within a batch."""
    for count in range(0, times, batch):
        if peer.session.connection.closed:
            return count
        peer.session.receive(what * batch, peer.now)
        while peer.session.output(peer.now):
            pass
    return times


FLOODS = {
    Flood.SETTINGS: settings((3, 100)),
    Flood.PINGS: raw(PING, 0, 0, bytes(8)),
    Flood.PRIORITIES: raw(PRIORITY, 0, 1, bytes(5)),
    Flood.EMPTY_DATA: raw(DATA, 0, 1),
    Flood.WINDOW_UPDATES: window_update(0, 1),
    Flood.UNKNOWN_FRAMES: raw(0xFA, 0, 0),
}


@pytest.mark.parametrize("flood", FLOODS, ids=lambda f: f.value)
def test_a_flood_ends_the_connection_is_counted_and_leaves_the_others(flood: Flood) -> None:
    bad, good = Peer(), Peer()
    bad.open(1, "/test.Echo/Quiet")
    sent = attack(bad, FLOODS[flood], MANY)
    assert sent <= 11_000
    assert bad.session.connection.closed
    assert bad.counters.floods == {flood: 1}
    assert bad.seen == ["cancelled"]
    assert good.alive


@pytest.mark.parametrize("flood", FLOODS, ids=lambda f: f.value)
def test_the_same_frames_at_an_ordinary_rate_are_no_flood(flood: Flood) -> None:
    peer = Peer()
    peer.open(1, "/test.Echo/Quiet")
    for _ in range(3_000):
        peer.now += 0.5
        peer.session.receive(FLOODS[flood] * 5, peer.now)
        peer.drain()
    assert not peer.session.connection.closed


def test_padded_data_that_carries_nothing_is_empty_too() -> None:
    peer = Peer()
    peer.open(1, "/test.Echo/Quiet")
    assert attack(peer, raw(DATA, 8, 1, b"\x02\0\0"), MANY) <= 2_000
    assert peer.counters.floods == {Flood.EMPTY_DATA: 1}


def test_settings_acks_that_answer_nothing_are_a_flood_too() -> None:
    assert attack(Peer(), raw(SETTINGS, ACK, 0), MANY) <= 2_000


def reset_streams(peer: Peer, count: int, first: int = 1, *, with_message: bool = False) -> None:
    """Open and reset streams, each answered before its reset if it carries a message."""
    block = peer.plain_block(REQUEST)
    for stream_id in range(first, first + 2 * count, 2):
        if peer.session.connection.closed:
            return
        peer.session.receive(raw(HEADERS, END_HEADERS, stream_id, block), peer.now)
        if with_message:
            peer.session.receive(raw(DATA, 0, stream_id, message(b"x")), peer.now)
            peer.session.output(peer.now)
        peer.session.receive(rst(stream_id), peer.now)


def test_rapid_reset_ends_the_connection() -> None:
    peer = Peer()
    reset_streams(peer, 50_000)
    assert goaway(peer.drain()) is CALM
    assert peer.counters.floods == {Flood.RESETS: 1}
    assert peer.counters.resets_unanswered <= 30_001
    assert peer.open_streams == 0


def test_ten_thousand_clients_that_cancel_at_once_are_no_flood_even_thrice() -> None:
    peer = Peer()
    block = peer.plain_block(REQUEST)
    for storm in range(3):
        ids = range(1 + storm * 20_000, 1 + (storm + 1) * 20_000, 2)
        for stream_id in ids:
            peer.session.receive(raw(HEADERS, END_HEADERS, stream_id, block), peer.now)
        assert peer.open_streams == 10_000
        for stream_id in ids:
            peer.session.receive(rst(stream_id), peer.now)
        assert peer.open_streams == 0
        peer.now += 1
    assert peer.alive


def test_resets_of_answered_streams_never_count() -> None:
    peer = Peer()
    reset_streams(peer, 40_000, with_message=True)
    assert peer.alive
    assert peer.counters.resets_received == 40_000
    assert peer.counters.resets_unanswered == 0


def test_a_reset_stream_keeps_nothing() -> None:
    peer = Peer()
    reset_streams(peer, 5_000)
    table = peer.session.connection._streams
    assert not table.open
    assert len(table._closed._recent) + len(table._closed._older) <= 2048


def test_making_us_reset_streams_is_a_flood_too() -> None:
    peer = Peer()
    peer.send(peer.head(1, REQUEST))
    block = peer.plain_block(REQUEST)
    frames = b"".join(raw(HEADERS, END_HEADERS, i, block) + window_update(i, 0) for i in range(3, 4_003, 2))
    peer.session.receive(frames, peer.now)
    assert goaway(peer.drain()) is CALM
    assert peer.counters.floods == {Flood.STREAM_ERRORS: 1}


def test_streams_refused_without_end_are_a_flood() -> None:
    peer = Peer(limits=Limits(max_concurrent_streams=1))
    peer.send(peer.head(1, REQUEST))
    block = peer.plain_block(REQUEST)
    for stream_id in range(3, 100_001, 2):
        peer.session.receive(raw(HEADERS, END_HEADERS, stream_id, block), peer.now)
    assert goaway(peer.drain()) is CALM
    assert peer.counters.refused_streams <= 30_000


def test_a_header_block_that_never_ends_is_cut_off() -> None:
    peer = Peer()
    peer.session.receive(raw(HEADERS, 0, 1, b"\x82"), peer.now)
    assert attack(peer, raw(CONTINUATION, 0, 1), MANY, batch=50) <= 400
    assert peer.counters.floods == {Flood.CONTINUATIONS: 1}


def test_a_header_block_that_grows_is_cut_off() -> None:
    peer = Peer()
    peer.session.receive(raw(HEADERS, 0, 1, b"\x82"), peer.now)
    assert attack(peer, raw(CONTINUATION, 0, 1, bytes(10_000)), 100, batch=1) <= 9
    assert peer.counters.floods == {Flood.HEADER_BOMB: 1}


def test_a_small_block_that_unpacks_to_much_is_cut_off() -> None:
    peer = Peer()
    peer.send(peer.head(1, [*REQUEST, ("bomb", "x" * 3900)]))
    frames = peer.send(raw(HEADERS, END_HEADERS, 3, b"\xbe" * 10_000))
    assert goaway(frames) is CALM
    assert peer.counters.floods == {Flood.HEADER_BOMB: 1}


def test_header_lists_just_above_the_limit_are_answered_until_they_are_many() -> None:
    peer = Peer()
    large = [*REQUEST, *((f"x-{i}", "v" * 1000) for i in range(17))]
    block = peer.plain_block(large)
    for stream_id in range(1, 251, 2):
        peer.session.receive(raw(HEADERS, END_HEADERS | END_STREAM, stream_id, block), peer.now)
    assert goaway(peer.drain()) is CALM
    assert peer.counters.floods == {Flood.HEADER_BOMB: 1}
    assert peer.seen == []


@pytest.mark.parametrize(
    ("late", "flood"),
    [(raw(DATA, 0, 1), Flood.EMPTY_DATA), (raw(HEADERS, END_HEADERS, 1, b"\x82"), Flood.UNKNOWN_FRAMES)],
)
def test_late_frames_on_a_stream_that_we_reset_have_a_bound(late: bytes, flood: Flood) -> None:
    peer = Peer()
    peer.send(peer.head(1, REQUEST), window_update(1, 0))
    attack(peer, late, MANY)
    assert peer.counters.floods == {flood: 1}


def test_windows_opened_byte_by_byte_are_a_flood_before_they_cost_much() -> None:
    peer = Peer()
    peer.send(settings((4, 0)))
    peer.open(1)
    for _ in range(4):
        peer.send(raw(DATA, 0, 1, message(bytes(16_000))))
    sent = attack(peer, window_update(1, 1), MANY)
    assert sent <= 11_000
    assert peer.counters.floods == {Flood.WINDOW_UPDATES: 1}


def test_a_client_that_reads_much_in_honest_steps_is_no_flood() -> None:
    peer = Peer()
    peer.open(1)
    for _ in range(30_000):
        frames = peer.send(raw(DATA, 0, 1, message(bytes(300))))
        assert len(body(frames)) == 305
        peer.send(window_update(1, 305), window_update(0, 305))
    assert peer.alive


def test_a_proxy_that_ends_every_answered_stream_with_a_reset_lives_for_ever() -> None:
    peer = Peer()
    peer.send(peer.head(1, REQUEST, end=True))
    block = peer.plain_block(REQUEST)
    for stream_id in range(3, 80_001, 2):
        peer.session.receive(raw(HEADERS, END_HEADERS, stream_id, block), peer.now)
        peer.session.receive(raw(DATA, 0, stream_id, message(b"x")), peer.now)
        peer.session.output(peer.now)
        peer.session.receive(raw(DATA, END_STREAM, stream_id) + rst(stream_id), peer.now)
    assert peer.alive
    assert resets(peer.open(200_001, ECHO)) == {}
