"""The addresses of a block's bytes, which are copied in as few pieces as possible."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvengine.copiers import Direction
from kvengine.copiers.host import copy
from kvengine.layout import Layout, Page, merged


def test_pages_that_are_neighbours_in_every_block_are_one_lane() -> None:
    assert merged([Page(100, 64, 32), Page(132, 64, 32)]) == (Page(100, 64, 64),)
    assert merged([Page(100, 32, 32), Page(500, 32, 32)]) == (Page(100, 32, 32), Page(500, 32, 32))
    assert merged([Page(100, 32, 32), Page(100, 32, 32)]) == (Page(100, 32, 32),)


def test_neighbouring_blocks_are_one_piece_per_lane() -> None:
    layout = Layout([Page(0, 32, 32), Page(1000, 32, 32)], blocks=10, chunk_blocks=4)
    pieces = layout.fragments([4, 5, 6, 7], [2], 0, arena=100_000)
    assert pieces.sizes.tolist() == [128, 128]
    assert pieces.device.tolist() == [128, 1128]
    assert pieces.host.tolist() == [100_000 + 2 * 256, 100_000 + 2 * 256 + 128]


def test_a_block_outermost_layout_is_one_piece_for_all_layers() -> None:
    layout = Layout([Page(layer * 32, 96, 32) for layer in range(3)], blocks=10, chunk_blocks=4)
    assert layout.fragments([1, 2, 3, 4], [0], 0, arena=0).sizes.tolist() == [4 * 96]


@pytest.mark.parametrize(
    ("blocks", "slots", "first"), [([10], [0], 0), ([-1], [0], 0), ([1, 2, 3], [0], 2), ([1], [], 0), ([1], [0], -1)]
)
def test_what_does_not_exist_is_refused(blocks: list[int], slots: list[int], first: int) -> None:
    with pytest.raises(ValueError, match="block"):
        Layout([Page(0, 32, 32)], blocks=10, chunk_blocks=4).fragments(blocks, slots, first, arena=0)


@st.composite
def geometries(draw: st.DrawFn) -> tuple[Layout, list[int], list[int], int, np.ndarray]:
    """Draw a layout over a real array, and blocks to move."""
    layers, page, blocks = draw(st.integers(1, 4)), draw(st.sampled_from([1, 8, 24])), draw(st.integers(1, 12))
    chunk_blocks = draw(st.integers(1, 4))
    outermost = draw(st.booleans())
    device = np.frombuffer(draw(st.randoms()).randbytes(layers * page * blocks), dtype=np.uint8).copy()
    base = device.ctypes.data
    pages = [
        Page(base + layer * page, layers * page, page) if outermost else Page(base + layer * blocks * page, page, page)
        for layer in range(layers)
    ]
    layout = Layout(pages, blocks, chunk_blocks)
    wanted = draw(st.lists(st.integers(0, blocks - 1), unique=True, min_size=1, max_size=blocks))
    first = draw(st.integers(0, chunk_blocks - 1))
    slots = draw(st.permutations(range(-(-(first + len(wanted)) // chunk_blocks))))
    return layout, wanted, list(slots), first, device


@given(geometries())
def test_what_is_stored_comes_back_and_nothing_else_changes(
    case: tuple[Layout, list[int], list[int], int, np.ndarray],
) -> None:
    layout, blocks, slots, first, device = case
    arena = np.zeros(layout.slot_bytes * len(slots), dtype=np.uint8)
    pieces = layout.fragments(blocks, slots, first, arena.ctypes.data)
    assert pieces.sizes.sum() == layout.block_bytes * len(blocks)
    before = device.copy()
    copy(pieces, Direction.STORE)
    assert (device == before).all()
    for start, size in zip(pieces.device.tolist(), pieces.sizes.tolist(), strict=True):
        ctypes.memset(start, 0, size)
    copy(pieces, Direction.LOAD)
    assert (device == before).all()
