"""No bytes make the session hang, leak or raise, and the same bytes in other pieces have the same effect."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import h2.config
import h2.connection
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.wire.http2.limits import Limits
from epp.wire.session import Session
from tests.epp.wire.peer import PREFACE, REQUEST, Peer, message, raw, rst, window_update
from tests.epp.wire.peer import settings as settings_frame

LIMITS = Limits(max_receive_message_bytes=10_000, max_concurrent_streams=20)


def run(pieces: list[bytes]) -> tuple[bytes, list[str]]:
    """Return the server's answer to ``pieces`` and the calls of its handlers, with the connection lost at the end."""
    peer = Peer(limits=LIMITS, greet=False)
    out = b""
    for piece in pieces:
        peer.session.receive(piece, peer.now)
        out += output(peer.session, peer.now)
    peer.session.end()
    assert peer.open_streams == 0
    assert peer.counters.streams == 0
    assert peer.counters.buffered_bytes == 0
    ends = sum(seen in ("cancelled", "half-closed") for seen in peer.seen)
    assert ends >= len(peer.calls) - peer.seen.count("left"), "every handler was told the end"
    return out, peer.seen


def output(session: Session, now: float) -> bytes:
    out = b""
    session.drop_overflowed()
    while piece := session.output(now):
        out += piece
    return out


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(at), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


def client_traffic(seed: int) -> bytes:
    """Return what an h2 client writes for a few calls without waiting for answers."""
    rng = random.Random(seed)
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
    client.initiate_connection()
    for _ in range(rng.randint(1, 6)):
        stream_id = client.get_next_available_stream_id()
        path = rng.choice(["/test.Echo/Both", "/test.Echo/Quiet", "/nobody/Home"])
        extra = [("x-random", str(rng.random()))] if rng.random() < 0.5 else []
        client.send_headers(stream_id, [(k, path if k == ":path" else v) for k, v in [*REQUEST, *extra]])
        for _ in range(rng.randint(0, 4)):
            client.send_data(stream_id, message(rng.randbytes(rng.randint(0, 300))) * rng.randint(1, 3))
        match rng.randint(0, 3):
            case 0:
                client.reset_stream(stream_id)
            case 1:
                client.send_headers(stream_id, [("x-trailer", "1")], end_stream=True)
            case 2:
                client.end_stream(stream_id)
            case _:
                client.ping(b"12345678")
    return bytes(client.data_to_send())


def mutations(data: bytes, seed: int) -> Iterator[bytes]:
    """Return real traffic with some of its bytes changed, lost, doubled or swapped."""
    rng = random.Random(seed)
    for _ in range(40):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(PREFACE) if rng.random() < 0.95 else 0, len(broken))
            match rng.randint(0, 3):
                case 0:
                    broken[at] ^= 1 << rng.randint(0, 7)
                case 1:
                    del broken[at : at + rng.randint(1, 12)]
                case 2:
                    broken[at:at] = broken[at : at + rng.randint(1, 60)]
                case _:
                    broken[at] = rng.choice([0, 1, 4, 5, 9, 0x7F, 0x80, 0xFF])
            if len(broken) <= len(PREFACE):
                break
        yield bytes(broken)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_any_bytes_are_survived(data: bytes, at: list[int]) -> None:
    run(cut(data, at))
    run([PREFACE, *cut(data, at)])


frame_payloads = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", bytes(4), bytes(5), bytes(8), b"\x82\x86\x84", message(b"hello"), b"\xff" * 9]),
    st.just(Peer().plain_block(REQUEST)),
)
any_frames = st.lists(
    st.builds(
        raw,
        st.one_of(st.integers(0, 10), st.sampled_from([0, 0, 1, 1, 9])),
        st.sampled_from([0, 1, 4, 5, 8, 13, 32, 36, 45, 255]),
        st.sampled_from([0, 1, 1, 3, 3, 5, 2, 2**31 - 1]),
        frame_payloads,
    ),
    max_size=25,
)


@given(any_frames, st.lists(st.integers(0, 2000), max_size=6))
@settings(max_examples=300)
def test_any_frames_are_survived_and_cutting_them_differently_changes_nothing(
    frames: list[bytes], at: list[int]
) -> None:
    data = PREFACE + settings_frame() + b"".join(frames)
    assert run(cut(data, at)) == run([data])


@pytest.mark.parametrize("seed", range(12))
def test_real_traffic_means_the_same_however_it_is_cut(seed: int) -> None:
    data = client_traffic(seed)
    whole = run([data])
    assert b"\x07\x00\x00\x00\x00\x00" not in whole[0][:9]
    assert run([data[i : i + 1] for i in range(len(data))]) == whole
    rng = random.Random(seed)
    for _ in range(10):
        assert run(cut(data, [rng.randrange(len(data)) for _ in range(rng.randint(1, 20))])) == whole


@pytest.mark.parametrize("seed", range(12))
def test_mutated_real_traffic_is_survived_and_means_the_same_however_it_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    for broken in mutations(client_traffic(seed), seed):
        assert run(cut(broken, [rng.randrange(len(broken)) for _ in range(5)])) == run([broken])


def test_a_header_block_that_repeats_means_what_the_table_says_now() -> None:
    """The same bytes mean another request once the table has changed, so cached blocks must be dropped with it."""
    peer = Peer()
    first = peer.block([*REQUEST, ("x-id", "1")])
    again = peer.block([*REQUEST, ("x-id", "1")])  # references only
    assert first != again
    peer.send(raw(1, 4, 1, first), raw(1, 4, 3, again), raw(1, 4, 5, again))
    peer.send(raw(1, 4, 7, peer.block([*REQUEST, ("x-id", "2")])))
    peer.send(raw(1, 4, 9, again))
    ids = [dict(metadata).get("x-id") for metadata in peer.metadata]
    assert ids[:4] == ["1", "1", "1", "2"]
    assert ids[4:] != ["1"], "in the moved table these references name other fields"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2", "x" * 900, "y" * 1200])), max_size=40))
def test_remembered_header_blocks_never_differ_from_decoded_ones(pairs: list[tuple[str, str]]) -> None:
    peer = Peer(limits=Limits(max_concurrent_streams=1000))
    for number, (name, value) in enumerate(pairs):
        peer.send(peer.head(2 * number + 1, [*REQUEST, (name, value)]))
    assert [metadata[-1] for metadata in peer.metadata] == pairs


def test_resets_and_windows_in_between_change_nothing_either() -> None:
    data = PREFACE + settings_frame((4, 3))
    peer = Peer(greet=False)
    for stream_id in range(1, 40, 2):
        data += peer.head(stream_id) + raw(0, 0, stream_id, message(b"abcdefgh"))
        data += window_update(stream_id, stream_id) + (rst(stream_id) if stream_id % 3 else b"")
    assert run([data[i : i + 1] for i in range(len(data))])[1] == run([data])[1]
