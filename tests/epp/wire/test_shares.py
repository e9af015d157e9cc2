"""The bounds on one connection's share of streams, memory and time. The tests count work, and never time it."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hyperframe.frame import DataFrame
from hypothesis import given
from hypothesis import strategies as st

from epp.wire.http2.compression import FIELD_WORK, WORK_S
from epp.wire.http2.counters import Counters
from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.floods import Flood
from epp.wire.http2.limits import Limits
from epp.wire.http2.outbound import Outbound
from epp.wire.http2.share import SMALLEST_BYTES, Share
from epp.wire.http2.streams import Places, Stream
from epp.wire.http2.windows import ReceiveWindow
from epp.wire.origins import Origins
from epp.wire.turns import HEADER_BURST_S, TURN_S, Clocks, HeaderBudget, Turn, TurnQueue
from tests.epp.wire.peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    REQUEST,
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
QUIET = [(k, "/test.Echo/Quiet" if k == ":path" else v) for k, v in REQUEST]


class Streams(list[Stream]):
    """Open streams that count how many of them were visited."""

    looked_at = 0

    def __iter__(self) -> Iterator[Stream]:
        for stream in super().__iter__():
            self.looked_at += 1
            yield stream


def sender(count: int) -> tuple[Outbound, Streams]:
    out = Outbound(lambda _: None, Limits(), Share(Limits(), Counters()))
    return out, Streams(Stream(i, ReceiveWindow(1, 1), None, 0.0) for i in range(1, 2 * count, 2))


# SETTINGS


def test_a_new_initial_window_looks_at_no_stream() -> None:
    out, streams = sender(1000)
    for size in (0, 100_000, 65_535, 2**31 - 1):
        assert out.set_initial_window(size, streams) == 0
    assert streams.looked_at == 0


def test_a_wider_window_lets_queued_bytes_out_and_says_how_many_streams_it_looked_at() -> None:
    out, streams = sender(10)
    out.set_initial_window(0, streams)
    for stream in streams[:3]:
        out.data(stream, b"", b"waits")
    assert out.set_initial_window(2, streams) == 10
    assert out.queued_bytes == 3 * 3


def test_a_stream_that_was_widened_and_is_gone_forbids_no_larger_initial_window() -> None:
    peer = Peer()
    peer.open(1, "/test.Echo/Quiet")
    peer.send(window_update(1, 2**31 - 1 - 65_535))
    assert goaway(peer.send(rst(1), settings((4, 2**31 - 1)))) is None
    assert peer.alive


@pytest.mark.parametrize("smaller_first", [False, True])
def test_a_larger_initial_window_that_overflows_any_streams_window_ends_the_connection(smaller_first: bool) -> None:
    peer = Peer()
    for stream_id in (1, 3, 5):
        peer.open(stream_id, "/test.Echo/Quiet")
    if smaller_first:
        peer.send(settings((4, 0)))
    peer.send(window_update(3, 2**31 - 1 - 65_535))
    assert goaway(peer.send(settings((4, 65_536)))) is ErrorCode.FLOW_CONTROL_ERROR


def test_settings_that_make_us_walk_many_streams_are_charged_by_them() -> None:
    peer = Peer()
    peer.send(settings((4, 0)))
    block = peer.plain_block(REQUEST)
    for stream_id in range(1, 20_000, 2):
        peer.session.receive(raw(HEADERS, END_HEADERS, stream_id, block), peer.now)
    peer.send(raw(DATA, 0, 1, message(bytes(1000))))
    toggles = 0
    while not peer.session.connection.closed:
        peer.session.receive(settings((4, 0)) + settings((4, 1)), peer.now)
        peer.session.output(peer.now)
        toggles += 1
    assert 10 <= toggles <= 30
    assert peer.counters.floods == {Flood.SETTINGS: 1}


# Headers


def test_open_calls_keep_none_of_their_headers() -> None:
    """A few bytes of references unpack to 12 KB of headers for each call."""
    peer = Peer()
    peer.open(1, "/test.Echo/Quiet", ("x-large", "v" * 3_900))
    blocks = [peer.plain_block(QUIET) + b"\xbe\xbe\xbe\0\1n\4%04d" % i for i in range(300)]  # the newest entry
    tracemalloc.start()
    try:
        for number, block in enumerate(blocks):
            peer.session.receive(raw(HEADERS, END_HEADERS, 2 * number + 3, block), peer.now)
            peer.metadata.clear()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peer.open_streams == 301
    assert peer.session.connection.headers_read.work > 300 * 4 * FIELD_WORK
    assert kept_bytes < 300 * 4_000
    assert not any(call.metadata for call in peer.calls)


def test_heads_that_unpack_to_much_are_not_remembered() -> None:
    peer = Peer()
    peer.open(1, "/test.Echo/Quiet", ("x-large", "v" * 3_900))
    for number in range(200):
        peer.open(
            2 * number + 3,
            "/test.Echo/Quiet",
            ("x-large", "v" * 3_900),
            ("te", "trailers") if number % 2 else ("a", "b"),
        )
    reader = peer.session.connection.headers_read
    assert sum(head.size_bytes for head, _ in reader._known.values()) <= 64 << 10


def test_a_remembered_block_is_no_work_and_another_is_charged_by_bytes_and_fields() -> None:
    peer = Peer()
    block = peer.plain_block(QUIET)
    peer.send(raw(HEADERS, END_HEADERS, 1, block))
    first = peer.session.connection.headers_read.work
    assert first == len(block) + FIELD_WORK * len(QUIET)
    for stream_id in range(3, 1001, 2):
        peer.send(raw(HEADERS, END_HEADERS, stream_id, block))
    assert peer.session.connection.headers_read.work == first


def test_late_headers_are_charged_by_their_bytes() -> None:
    peer = Peer()
    peer.send(peer.head(1, QUIET), window_update(1, 0))
    late = raw(HEADERS, END_HEADERS, 1, peer.plain_block([("x", "~" * 8_000)]))
    sent = 0
    while not peer.session.connection.closed:
        peer.session.receive(late, peer.now)
        sent += len(late)
    assert sent < 11_000 * 64
    assert peer.counters.floods == {Flood.UNKNOWN_FRAMES: 1}


def test_headers_may_take_their_share_of_a_core_and_wait_beyond_it() -> None:
    budget, second = HeaderBudget(0.25), 0.25 / WORK_S
    now, waited = 100.0, 0.0
    for _ in range(100):  # each costs half a second of the share
        wait = budget.wait(int(second / 2), now)
        waited += wait
        now += wait
    assert waited == pytest.approx(100 * 0.5 - HEADER_BURST_S)
    assert budget.wait(0, now) == pytest.approx(0.0)


def test_an_address_that_connects_anew_has_the_debt_of_its_old_connections() -> None:
    origins = Origins(Limits(header_share=0.25), Clocks())
    second = int(0.25 / WORK_S)
    first = origins.join("bad", 100.0)
    assert first.headers.wait(3 * second, 100.0) == pytest.approx(2.0)
    origins.leave(first, 100.0)
    assert origins.join("bad", 101.0) is first
    assert first.headers.wait(0, 101.0) == pytest.approx(1.0)
    origins.leave(first, 101.0)
    assert origins.join("bad", 104.0) is not first


def test_addresses_that_left_are_forgotten_once_they_owe_nothing() -> None:
    origins = Origins(Limits(), Clocks())
    for number in range(1000):
        origin = origins.join(str(number), number / 1000)
        origin.headers.wait(1000, number / 1000)
        origins.leave(origin, number / 1000)
    assert len(origins) < 10
    origins.leave(origins.join("last", 10.0), 10.0)
    origins.leave(origins.join("last", 10.0), 10.0)
    assert len(origins) == 0


def test_an_envoy_that_traces_4000_requests_a_second_never_waits() -> None:
    budget = HeaderBudget(Limits().header_share)
    for tick in range(1000):
        assert budget.wait(170 * 40, tick / 100) == 0.0


# Streams


def test_a_connection_has_as_many_streams_as_it_leaves_free() -> None:
    limits = Limits(max_streams=30)
    one = Peer(limits=limits)
    two = Peer(limits=limits, counters=one.counters)
    for peer, most in ((one, 15), (two, 8)):
        for stream_id in range(1, 101, 2):
            peer.open(stream_id, "/test.Echo/Quiet")
        assert peer.open_streams == most
    assert one.counters.refused_streams == 35 + 42
    assert two.alive


def test_an_address_leaves_places_however_many_connections_it_opens() -> None:
    limits = Limits(max_streams=40)
    places = Places()
    many = [Peer(limits=limits, places=places)]
    many += [Peer(limits=limits, places=places, counters=many[0].counters) for _ in range(19)]
    for peer in many:
        for stream_id in range(1, 101, 2):
            peer.open(stream_id, "/test.Echo/Quiet")
    assert sum(peer.open_streams for peer in many) == places.taken == 30
    other = Peer(limits=limits, counters=many[0].counters)
    for stream_id in range(1, 101, 2):
        other.open(stream_id, "/test.Echo/Quiet")
    assert other.open_streams == 5, "a single connection leaves as many places free as it takes"
    for peer in many:
        peer.session.end()
    assert places.taken == 0


def test_a_proxy_that_is_alone_gets_30_000_streams_on_any_number_of_connections() -> None:
    limits, places = Limits(), Places()
    assert limits.max_streams == 40_000
    many = [Peer(limits=limits, places=places)]
    many += [Peer(limits=limits, places=places, counters=many[0].counters) for _ in range(7)]
    block = many[0].plain_block(QUIET)
    for stream_id in range(1, 7_501, 2):
        for peer in many:
            peer.session.receive(raw(HEADERS, END_HEADERS, stream_id, block), peer.now)
    assert places.taken == 30_000
    assert many[0].counters.refused_streams == 0


def test_streams_that_are_refused_for_the_neighbours_sake_are_no_flood() -> None:
    peer = Peer(limits=Limits(max_streams=0))
    block = peer.plain_block(QUIET)
    for stream_id in range(1, 80_001, 2):
        peer.session.receive(raw(HEADERS, END_HEADERS, stream_id, block), peer.now)
        peer.session.output(peer.now)
    assert peer.alive


def test_a_stream_without_a_message_ends_in_time_and_one_with_a_message_stays() -> None:
    peer = Peer(limits=Limits(first_message_s=60))
    peer.open(1, "/test.Echo/Quiet")
    peer.open(3, "/test.Echo/Quiet")
    peer.send(raw(DATA, 0, 3, message(b"x")))
    peer.session.drop_silent(peer.now + 59)
    assert peer.open_streams == 2
    peer.session.drop_silent(peer.now + 61)
    frames = peer.drain()
    assert peer.fields(next(f for f in frames if f.stream_id == 1))["grpc-status"] == "4"
    assert peer.open_streams == 1
    assert peer.counters.silent_streams == 1
    peer.session.drop_silent(peer.now + 1e6)
    assert peer.open_streams == 1, "an answer may take hours"


# Messages in pieces


def test_a_message_in_tiny_frames_is_kept_in_few_objects_and_is_a_flood() -> None:
    peer = Peer()
    peer.open(1, "/test.Echo/Quiet")
    peer.send(raw(DATA, 0, 1, message(bytes(100_000))[:5]))
    sent = 0
    while not peer.session.connection.closed and sent < 20_000:
        peer.session.receive(raw(DATA, 0, 1, b"xy"), peer.now)
        sent += 1
        if sent == 5_000:
            call = peer.calls[0]
            assert len(call.reader._parts) == 1  # type: ignore[attr-defined]
    assert sent <= 11_000
    assert peer.counters.floods == {Flood.TINY_DATA: 1}
    assert peer.counters.buffered_bytes == 0


def test_a_client_that_sends_each_prefix_in_a_frame_of_its_own_is_no_flood() -> None:
    peer = Peer()
    peer.open(1, "/test.Echo/Quiet")
    for _ in range(30_000):
        whole = message(b"a small message")
        peer.session.receive(raw(DATA, 0, 1, whole[:5]) + raw(DATA, 0, 1, whole[5:]), peer.now)
        peer.session.output(peer.now)
    assert peer.alive
    assert peer.seen == ["15 bytes"] * 30_000


@given(st.lists(st.one_of(st.integers(1, 10), st.integers(200, 600)), min_size=1, max_size=60), st.integers(0, 5_000))
def test_a_message_in_pieces_of_any_size_is_whole(sizes: list[int], length: int) -> None:
    peer = Peer()
    peer.send(settings((4, 1 << 20)))
    peer.open(1)
    data, at, got = message(bytes(i % 251 for i in range(length))), 0, b""
    for size in sizes:
        got += body(peer.send(raw(DATA, 0, 1, data[at : at + size])))
        at += size
    got += body(peer.send(raw(DATA, END_STREAM, 1, data[at:]))) if at < len(data) else b""
    assert got == data
    assert peer.counters.buffered_bytes == 0


# Memory


def test_what_all_connections_buffer_has_a_bound_and_who_reads_is_not_touched() -> None:
    limits = Limits(max_buffered_bytes=4 << 20)
    good = Peer(limits=limits)
    counters = good.counters
    counters.connections = 9
    bad = [Peer(limits=limits, counters=counters) for _ in range(8)]
    for peer in bad:
        peer.send(settings((4, 0)))
        for stream_id in range(1, 41, 2):
            peer.open(stream_id)
            for _ in range(15):
                peer.send(raw(DATA, 0, stream_id, message(bytes(16_000))))
    assert counters.buffered_bytes <= (4 << 20) + 9 * SMALLEST_BYTES
    assert counters.crowded_out_streams > 0
    good.send(settings((4, 1 << 20)))
    good.open(1)
    for _ in range(50):
        frames = good.send(raw(DATA, 0, 1, message(bytes(16_000))), window_update(0, 16_005), window_update(1, 16_005))
        assert any(isinstance(f, DataFrame) for f in frames)
        assert not resets(frames)
    for peer in (good, *bad):
        peer.session.end()
    assert counters.buffered_bytes == 0


def test_messages_that_never_end_count_too() -> None:
    limits = Limits(max_buffered_bytes=1 << 20)
    peer = Peer(limits=limits)
    for stream_id in range(1, 41, 2):
        peer.open(stream_id, "/test.Echo/Quiet")
        data = message(bytes(1 << 20))
        for start in range(0, 160_000, 16_000):
            peer.send(raw(DATA, 0, stream_id, data[start : start + 16_000]))
    assert peer.counters.buffered_bytes <= (1 << 20)
    assert peer.counters.crowded_out_streams > 0
    assert peer.alive


# Turns


def test_a_session_stops_when_it_is_pressed_and_proceeds_where_it_stopped() -> None:
    data = b""
    peer = Peer()
    for stream_id in range(1, 41, 2):
        data += peer.head(stream_id) + raw(DATA, END_STREAM, stream_id, message(b"hello"))
    stops, done = 0, peer.session.receive(data, peer.now, lambda: True)
    while not done:
        stops += 1
        done = peer.session.proceed(peer.now, lambda: True)
    assert stops >= 40
    assert peer.seen == ["5 bytes", "half-closed"] * 20


def test_frames_that_are_no_events_end_a_turn_too() -> None:
    peer = Peer()
    stops, done = 0, peer.session.receive(raw(PING, 0, 0, bytes(8)) * 1_000, peer.now, lambda: True)
    while not done:
        stops += 1
        done = peer.session.proceed(peer.now, lambda: True)
    assert stops >= 10
    assert len(peer.drain()) == 1_000


def test_a_connection_that_is_lost_in_the_middle_of_a_turn_ends_each_call_once() -> None:
    peer = Peer()
    data = b"".join(peer.head(i, QUIET) + raw(DATA, 0, i, message(b"hello")) for i in range(1, 41, 2))
    assert not peer.session.receive(data, peer.now, lambda: len(peer.calls) >= 7)
    peer.session.end()
    assert peer.session.proceed(peer.now)
    assert peer.seen.count("cancelled") == len(peer.calls) == 7


def test_a_turn_ends_with_its_time_and_begins_with_the_loops_next_run() -> None:
    now = 50.0
    turn = Turn(Clocks(lambda: now, lambda: now))
    assert turn.begin(1.0)
    for _ in range(9):
        now += TURN_S / 10
        assert not turn.over()
    now += TURN_S / 5
    assert turn.over()
    assert not turn.begin(1.0), "the loop has not looked at any other connection yet"
    assert turn.over()
    assert turn.begin(1.001)
    assert not turn.over()


def test_a_turn_goes_on_after_the_process_has_waited_for_a_core() -> None:
    wall = cpu = 50.0
    turn = Turn(Clocks(lambda: wall, lambda: cpu))
    turn.begin(1.0)
    for _ in range(4):
        wall += 10 * TURN_S
        assert not turn.over()
        cpu += TURN_S / 10
    wall, cpu = wall + TURN_S, cpu + TURN_S
    assert turn.over()


class Greedy:
    """A connection that uses each turn up, ``left`` times."""

    def __init__(self, origin: str, queue: TurnQueue, clock: Iterator[float], left: int, order: list[str]) -> None:
        self.origin, self.left = origin, left
        self._queue, self._clock, self._order = queue, clock, order

    def resume(self, turn: Turn) -> None:
        self._order.append(self.origin)
        self.left -= 1
        while not turn.over():
            next(self._clock)
        if self.left:
            self._queue.add(self)


def test_one_connection_goes_on_in_each_run_of_the_loop_and_addresses_take_turns() -> None:
    scheduled: list[Callable[[], None]] = []
    order: list[str] = []
    ticks = (float(tick) for tick in count())
    queue = TurnQueue(Turn(Clocks(lambda: next(ticks), lambda: next(ticks))), scheduled.append)
    for _ in range(50):
        queue.add(Greedy("bad", queue, ticks, 2, order))
    queue.add(Greedy("good", queue, ticks, 2, order))
    for run in range(1, 5):
        assert len(scheduled) == 1
        scheduled.pop()()
        assert len(order) == run
    assert order == ["bad", "good", "bad", "good"]
    while scheduled:
        scheduled.pop()()
    assert Counter(order) == {"bad": 100, "good": 2}


def test_a_turn_of_the_queue_is_shared_by_connections_that_have_little_to_do() -> None:
    scheduled: list[Callable[[], None]] = []
    order: list[str] = []
    queue = TurnQueue(Turn(Clocks(lambda: 0.0, lambda: 0.0)), scheduled.append)

    class Small(Greedy):
        def resume(self, turn: Turn) -> None:
            order.append(self.origin)

    for _ in range(50):
        queue.add(Small("proxy", queue, iter(()), 1, order))
    gone = Small("gone", queue, iter(()), 1, order)
    queue.add(gone)
    queue.remove(gone)
    queue.remove(gone)
    scheduled.pop()()
    assert order == ["proxy"] * 50
    assert not scheduled


def test_a_connection_that_fails_in_its_turn_does_not_keep_the_others_waiting() -> None:
    scheduled: list[Callable[[], None]] = []
    order: list[str] = []
    queue = TurnQueue(Turn(Clocks(lambda: 0.0, lambda: 0.0)), scheduled.append)

    class Failing(Greedy):
        def resume(self, turn: Turn) -> None:
            order.append(self.origin)
            if self.origin == "bad":
                raise RuntimeError

    for origin in ("bad", "good"):
        queue.add(Failing(origin, queue, iter(()), 1, order))
    with pytest.raises(RuntimeError):
        scheduled.pop()()
    scheduled.pop()()
    assert order == ["bad", "good"]
