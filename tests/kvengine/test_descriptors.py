"""The descriptors of a copy, compared with the same worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvengine.copiers.descriptors import HostPieces, batches, checked, cut, split
from kvengine.copiers.ring import Ring
from kvengine.copiers.staging import staged
from kvengine.cuda.driver import Event
from kvengine.layout import Fragments

DEVICE, HOST = 10**12, 4096


@st.composite
def fragments(draw: st.DrawFn, largest: int = 300) -> Fragments:
    """Draw fragments that are apart on the device, and adjacent or not in host memory, in any order."""
    sizes = draw(st.lists(st.integers(0, largest), max_size=30))
    gaps = [draw(st.sampled_from((0, 0, 5))) for _ in sizes]
    host, device, at, there = [], [], HOST, DEVICE
    for size, gap in zip(sizes, gaps, strict=True):
        host.append(at)
        device.append(there)
        at += size + gap
        there += size + 7
    order = draw(st.permutations(range(len(sizes))))
    return Fragments(*(np.array([each[i] for i in order], dtype=np.int64) for each in (device, host, sizes)))


def by_byte(some: Fragments) -> dict[int, int]:
    """Return the device address of each byte, by its address in host memory."""
    placed = {}
    for device, host, size in zip(*(each.tolist() for each in some), strict=True):
        for at in range(size):
            assert host + at not in placed
            placed[host + at] = device + at
    return placed


@given(fragments(), st.integers(1, 200), st.integers(0, 4096))
def test_cut_fragments_are_the_same_bytes_each_within_one_piece(some: Fragments, size: int, origin: int) -> None:
    parts = cut(some, HostPieces(origin, size))
    assert by_byte(parts) == by_byte(some)
    for host, length in zip(parts.host.tolist(), parts.sizes.tolist(), strict=True):
        assert (host - origin) // size == (host - origin + max(0, length - 1)) // size


@given(fragments(), st.integers(0, 310))
def test_split_loses_nothing_and_parts_by_size(some: Fragments, below: int) -> None:
    small, large = split(some, below)
    assert by_byte(small) | by_byte(large) == by_byte(some)
    assert (small.sizes < below).all()
    assert (large.sizes >= below).all()


@given(fragments(), st.integers(300, 900), st.integers(1, 9), st.integers(50, 400))
def test_staged_bytes_arrive_where_they_should_and_each_load_fits(
    some: Fragments, place: int, moves: int, piece: int
) -> None:
    arrived: dict[int, int] = {}
    for load in staged(some, HostPieces(0, piece), most_bytes=place, most_moves=moves):
        assert len(load.sizes) <= moves
        assert (load.offsets + load.sizes).max() <= place
        at_offset: dict[int, int] = {}
        for offset, host, size in zip(*(each.tolist() for each in load.spans), strict=True):
            assert host // piece == (host + max(0, size - 1)) // piece
            at_offset.update((offset + i, host + i) for i in range(size))
        for device, offset, size in zip(*(e.tolist() for e in (load.device, load.offsets, load.sizes)), strict=True):
            for i in range(size):
                assert at_offset[offset + i] not in arrived
                arrived[at_offset[offset + i]] = device + i
    assert arrived == by_byte(some)


def test_a_whole_slot_of_small_fragments_is_one_span() -> None:
    sizes = np.full(64, 4096, dtype=np.int64)
    at = np.arange(64, dtype=np.int64) * 4096
    (load,) = staged(
        Fragments(DEVICE + 2 * at, HOST + at, sizes), HostPieces(0, 1 << 30), most_bytes=1 << 20, most_moves=99
    )
    assert load.spans.sizes.tolist() == [64 * 4096]


def test_a_fragment_that_fits_no_place_is_refused() -> None:
    one = Fragments(*(np.array([each], dtype=np.int64) for each in (DEVICE, HOST, 1001)))
    with pytest.raises(ValueError, match="a fragment of 1,001 bytes, and a place of 1,000"):
        list(staged(one, HostPieces(0, 4096), most_bytes=1000, most_moves=1))


def test_lists_of_different_lengths_and_negative_sizes_are_refused() -> None:
    one, two = np.array([1]), np.array([1, 2])
    with pytest.raises(ValueError, match="2 places on the device, 1 in host memory and 2 sizes"):
        checked(Fragments(two, one, two))
    with pytest.raises(ValueError, match="a piece of -1 bytes"):
        checked(Fragments(one, one, -one))


@given(st.integers(0, 5000), st.integers(1, 1024))
def test_batches_cover_everything_once(count: int, most: int) -> None:
    parts = list(batches(count, most))
    assert [at for part in parts for at in range(part.start, part.stop)] == list(range(count))
    assert all(part.stop - part.start <= most for part in parts)


@given(st.integers(1, 5), st.integers(0, 20))
def test_a_place_comes_round_with_the_event_of_its_last_use(places: int, uses: int) -> None:
    ring = Ring(places)
    for use in range(uses):
        place = ring.take()
        assert place == (use % places, Event(use - places) if use >= places else None)
        ring.leave(place.number, Event(use))
    ring.clear()
    assert ring.take().free_after is None


def test_a_place_that_was_never_left_is_not_given_again() -> None:
    ring = Ring(1)
    ring.take()
    with pytest.raises(RuntimeError, match="place 0 of 1 was taken and never left"):
        ring.take()
    ring.clear()
    ring.leave(ring.take().number, Event(1))
    with pytest.raises(RuntimeError, match="place 0 of 1 is left, and was not taken"):
        ring.leave(0, Event(1))
