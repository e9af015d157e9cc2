"""Every copier keeps the promises of ``kvengine.copiers.base``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvengine.copiers import Direction, Done
from kvengine.copiers.base import JobId
from kvengine.copiers.verify import difference, memory
from kvengine.layout import Fragments, Layout, Page
from tests.kvengine.copy_site import KINDS, Bytes, MemorySite, Site, site

PATIENCE_S = 60


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[Site]:
    """One site for all tests that leave nothing running."""
    with site(request.param) as opened:
        if opened is None:
            pytest.skip("there is no CUDA device, or no driver of one, on this machine")
        yield opened


@pytest.fixture
def place(shared: Site) -> Iterator[Site]:
    yield shared
    assert shared.copier.poll() == []
    shared.free()


@pytest.fixture(params=KINDS)
def own(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A site of its own, which the test may break."""
    with site(request.param) as opened:
        if opened is None:
            pytest.skip("there is no CUDA device, or no driver of one, on this machine")
        yield opened


def done(where: Site, count: int) -> dict[JobId, Done]:
    """Return the next ``count`` jobs that end."""
    ended: dict[JobId, Done] = {}
    until = time.monotonic() + PATIENCE_S
    while len(ended) < count:
        assert time.monotonic() < until, "a job never ended"
        for each in where.copier.poll():
            assert each.job not in ended, "a job ended twice"
            ended[each.job] = each
        os.sched_yield()  # the copier's threads need the interpreter
    return ended


def piece(device: int, host: int, size: int) -> Fragments:
    return Fragments(*(np.array([each], dtype=np.int64) for each in (device, host, size)))


def random_bytes(size: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def test_a_store_reads_what_was_launched_before_it_was_submitted(place: Site) -> None:
    device, host = place.device(40_000), place.host(40_000)
    for number in range(5):
        data = random_bytes(40_000, number)
        release = place.launch(device, data)
        place.copier.submit(JobId(number), Direction.STORE, piece(device, host, 40_000))
        if isinstance(place, MemorySite):
            assert place.copier.poll() == [], "it did not wait"
        release()
        assert done(place, 1)[JobId(number)].ok
        assert (memory(host, 40_000) == data).all()
        place.settled()


def test_a_load_does_not_wait_for_stores_that_wait(place: Site) -> None:
    device, host = place.device(8192), place.host(8192)
    data = random_bytes(4096)
    memory(host, 4096)[:] = data
    release = place.launch(device + 4096, data)
    place.copier.submit(JobId(1), Direction.STORE, piece(device + 4096, host + 4096, 4096))
    place.copier.submit(JobId(2), Direction.LOAD, piece(device, host, 4096))
    first = done(place, 1 if isinstance(place, MemorySite) else 2)  # only there can compute be held
    assert first[JobId(2)].ok
    release()
    if isinstance(place, MemorySite):
        assert done(place, 1)[JobId(1)].ok
    assert (place.read(device, 4096) == data).all()


def test_what_a_finished_store_read_may_be_loaded_over_and_what_it_wrote_loaded_from(place: Site) -> None:
    device, host = place.device(30_000), place.host(60_000)
    before, after = random_bytes(30_000, 1), random_bytes(30_000, 2)
    memory(host + 30_000, 30_000)[:] = after
    place.launch(device, before)()
    for number in range(0, 30, 3):
        place.copier.submit(JobId(number), Direction.STORE, piece(device, host, 30_000))
        done(place, 1)
        place.copier.submit(JobId(number + 1), Direction.LOAD, piece(device, host + 30_000, 30_000))
        done(place, 1)
        place.copier.submit(JobId(number + 2), Direction.LOAD, piece(device, host, 30_000))
        done(place, 1)
    assert (memory(host, 30_000) == before).all()
    assert (place.read(device, 30_000) == before).all()


def test_known_bytes_at_odd_addresses_and_sizes_come_back(place: Site) -> None:
    assert difference(place.copier, place.device(200_001), place.host(400_002), 200_001) is None


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int, int, bool]:
    """Draw pages as (bytes, gap between blocks), blocks, blocks per chunk, and whether a block's pages are adjacent."""
    layers = draw(st.integers(1, 4))
    size = draw(st.sampled_from((16, 48, 100, 256, 1000, 4096)))
    return (
        [(size, draw(st.sampled_from((0, 16, 64))))] * layers,
        draw(st.integers(2, 12)),
        draw(st.integers(1, 4)),
        draw(st.booleans()),
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layouts(), st.randoms(use_true_random=False))
def test_random_layouts_and_orders_of_blocks_come_back(shared: Site, shape: object, random: object) -> None:
    layers, blocks, chunk, block_outermost = shape  # type: ignore[misc]
    size, gap = layers[0]
    stride = size * len(layers) + gap if block_outermost else size + gap
    device = shared.device(stride * blocks * len(layers))
    step = size if block_outermost else stride * blocks
    pages = [Page(device + number * step, stride, size) for number in range(len(layers))]
    layout = Layout(pages, blocks, chunk)
    slots = -(-blocks // chunk)
    arena = shared.host(slots * layout.slot_bytes)
    content = random_bytes(stride * blocks * len(layers), blocks)
    shared.launch(device, content)()
    order = list(range(blocks))
    random.shuffle(order)  # type: ignore[attr-defined]
    places = list(range(slots))
    random.shuffle(places)  # type: ignore[attr-defined]
    shared.copier.submit(JobId(0), Direction.STORE, layout.fragments(order, places, 0, arena))
    assert done(shared, 1)[JobId(0)].ok
    # By hand: lane after lane, block after block.
    expected = np.zeros(slots * layout.slot_bytes, dtype=np.uint8)
    used = np.zeros(len(expected), dtype=bool)
    for at, block in enumerate(order):
        offset = places[at // chunk] * layout.slot_bytes
        for lane in layout.lanes:
            begin = lane.base - device + block * lane.stride_bytes
            to = offset + (at % chunk) * lane.page_bytes
            expected[to : to + lane.page_bytes] = content[begin : begin + lane.page_bytes]
            used[to : to + lane.page_bytes] = True
            offset += lane.page_bytes * chunk
    held = memory(arena, len(expected))
    assert (held[used] == expected[used]).all()
    shared.launch(device, np.zeros_like(content))()
    shared.settled()
    shared.copier.submit(JobId(1), Direction.LOAD, layout.fragments(order, places, 0, arena))
    assert done(shared, 1)[JobId(1)].ok
    now = shared.read(device, len(content))
    for block in range(blocks):
        for lane in layout.lanes:
            begin = lane.base - device + block * lane.stride_bytes
            assert (now[begin : begin + lane.page_bytes] == content[begin : begin + lane.page_bytes]).all()
    shared.free()


def test_thousands_of_jobs_beside_running_compute_end_once_each_and_carry_their_bytes(place: Site) -> None:
    blocks, size = 2048, 64
    data = random_bytes(blocks * size)
    device, host, elsewhere = place.device(blocks * size), place.host(blocks * size), place.device(4096)
    place.launch(device, data)()
    layout = Layout([Page(device, size, size)], blocks, chunk_blocks=2)
    pairs = np.random.default_rng(3).permutation(blocks).reshape(-1, 2).tolist()
    for direction in (Direction.STORE, Direction.LOAD):
        for number, pair in enumerate(pairs):
            if number % 64 == 0:
                place.launch(elsewhere, random_bytes(512, number))()
            place.copier.submit(JobId(number), direction, layout.fragments(pair, [number], 0, host))
        ended = done(place, len(pairs))
        assert all(each.ok and each.copied_bytes == 128 and each.direction is direction for each in ended.values())
        place.settled()
        if direction is Direction.STORE:
            place.launch(device, np.zeros_like(data))()
            place.settled()
    assert (place.read(device, len(data)) == data).all()


def test_loads_and_stores_at_once_do_not_mix(place: Site) -> None:
    count, size = 200, 3000
    data = random_bytes(count * size)
    device, host = place.device(2 * count * size), place.host(2 * count * size)
    place.launch(device, data)()
    memory(host + count * size, count * size)[:] = data[::-1]
    for number in range(count):
        at = number * size
        place.copier.submit(JobId(number), Direction.STORE, piece(device + at, host + at, size))
        other = count * size + at
        place.copier.submit(JobId(count + number), Direction.LOAD, piece(device + other, host + other, size))
    assert all(each.ok for each in done(place, 2 * count).values())
    assert (memory(host, count * size) == data).all()
    assert (place.read(device + count * size, count * size) == data[::-1]).all()


def test_a_job_that_cannot_be_done_ends_as_failed_and_the_next_one_goes_on(place: Site) -> None:
    device, host = place.device(8), place.host(8)
    memory(host, 8)[:] = 7
    broken = Fragments(np.array([device, device]), np.array([host]), np.array([0, 0]))
    place.copier.submit(JobId(1), Direction.LOAD, broken)
    place.copier.submit(JobId(2), Direction.LOAD, piece(device, host, 8))
    ended = done(place, 2)
    assert (ended[JobId(1)].ok, ended[JobId(2)].ok) == (False, True)
    assert (place.read(device, 8) == 7).all()


def test_a_job_of_nothing_ends(place: Site) -> None:
    nothing = Fragments(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
    for direction in Direction:
        place.copier.submit(JobId(1), direction, nothing)
        ended = done(place, 1)[JobId(1)]
        assert ended.ok
        assert ended.copied_bytes == 0


def test_closing_while_jobs_run_ends_every_job(own: Site) -> None:
    device, host = own.device(1 << 18), own.host(1 << 19)
    release = own.launch(device, random_bytes(1 << 10))
    for number in range(50):
        own.copier.submit(JobId(number), Direction.LOAD, piece(device + (1 << 17), host, 1 << 16))
        own.copier.submit(JobId(50 + number), Direction.STORE, piece(device, host + (1 << 18), 1 << 16))
    release()
    own.copier.close()
    own.copier.close()
    assert len({each.job for each in own.copier.poll()}) == 100
    assert own.copier.poll() == []
