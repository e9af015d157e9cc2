from __future__ import annotations

import random

import pytest

from benchmarks.picker.churn import Churn
from benchmarks.picker.soak_rows import Slice, judged

LEAK_MB_PER_HOUR = 20.0


def rows(minutes: float, rss_mb: list[float]) -> list[Slice]:
    """The rows of a run in which nothing but memory changes much; as uneven otherwise as a recorded one."""
    draw = random.Random(3)
    return [
        Slice(
            minute=(n + 1) * minutes / len(rss_mb), requests=draw.randint(4000, 9000), refused=0, lost=0,
            p50_ms=draw.uniform(6, 20), p99_ms=draw.uniform(30, 240), cpu_us=draw.randint(1150, 1700), rss_mb=rss,
            fds=51, index_blocks=draw.randint(33_000, 53_000), in_flight=draw.randint(0, 16), load_average=2.0,
        )
        for n, rss in enumerate(rss_mb)
    ]  # fmt: skip


def noise(seed: int) -> list[float]:
    """Resident memory that goes up and down by some hundred KiB, as an allocator's does."""
    draw = random.Random(seed)
    return [150 + draw.uniform(-0.3, 0.3) for _ in range(20)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("minutes", [5.0, 10.0, 60.0])
def test_a_leak_of_20_mb_an_hour_is_found(minutes: float, seed: int) -> None:
    leaking = [rss + LEAK_MB_PER_HOUR / 60 * minutes * (n + 1) / 20 for n, rss in enumerate(noise(seed))]
    assert "rss_mb" in judged(rows(minutes, leaking))[1]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("minutes", [5.0, 10.0, 60.0])
def test_memory_that_only_varies_is_flat(minutes: float, seed: int) -> None:
    assert judged(rows(minutes, noise(seed)))[1] == []


@pytest.mark.parametrize("at", range(4, 20))
def test_one_new_high_water_mark_is_no_leak(at: int) -> None:
    """The heap keeps what one burst has taken, and no more comes."""
    stepped = [rss + (3.0 if n >= at else 0.0) for n, rss in enumerate(noise(1))]
    assert judged(rows(10, stepped))[1] == []


def test_memory_that_has_reached_its_limits_by_the_middle_of_the_run_is_flat() -> None:
    """Rows that were recorded when the tables filled during the run."""
    recorded = [117.5, 119.7, 127.4, 130.0, 131.4, 132.4, 132.9, 134.1, 135.4, 138.6, 138.0, 139.7, 140.9, 140.9, 141.4,
                141.4, 141.4, 141.3, 141.2, 141.3]  # fmt: skip
    assert judged(rows(10, recorded))[1] == []


def test_what_fills_the_tables_has_as_many_names_as_are_kept_and_pairs_without_end() -> None:
    names = Churn(seed=1).names(limit=10)
    heads = [next(names).split(b"\r\n\r\n") for _ in range(100)]
    assert len({(head.split(b"fairness-id: ")[1].split(b"\r\n")[0], body[:40]) for head, body in heads}) == 100
    assert len({head.split(b"fairness-id: ")[1].split(b"\r\n")[0] for head, _ in heads}) == 10
