"""The expected share of hits is compared with a simulated cache."""

from __future__ import annotations

from collections import OrderedDict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.lab.size.reuse import Reuse


def simulated(reuse: Reuse, capacity: int, seed: int = 0) -> float:
    """Return the share of repeated shared prompts that a least-recently-used cache of ``capacity`` tokens still has."""
    random, cache, used = Random(seed), OrderedDict[object, int](), 0
    asked = found = 0
    order = [n % round(reuse.groups) for n in range(round(reuse.groups * reuse.prompts))]
    random.shuffle(order)
    order = [group for group in order if random.random() < reuse.share]
    seen: set[int] = set()
    for number, group in enumerate(order):
        if group in seen:
            asked += 1
            found += group in cache
        seen.add(group)
        for key, tokens in ((group, round(reuse.shared_tokens)), (("tail", number), round(reuse.tail_tokens))):
            used += tokens - cache.pop(key, 0)
            cache[key] = tokens
        while used > capacity:
            used -= cache.popitem(last=False)[1]
    return found / asked


@pytest.mark.parametrize("part", [0.3, 0.5, 0.8, 1.0, 1.3])
@pytest.mark.parametrize("tail", [100, 1280])
@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize(("prompts", "runs"), [(100, 3), (10, 10), (4, 40)])
def test_the_expected_share_is_what_a_cache_finds(
    part: float, tail: int, share: float, prompts: int, runs: int
) -> None:
    reuse = Reuse(groups=40, prompts=prompts, shared_tokens=5000, tail_tokens=tail, share=share)
    capacity = int(part * 40 * 5000)
    found = sum(simulated(reuse, capacity, seed) for seed in range(runs)) / runs
    assert reuse.hit_share(capacity) == pytest.approx(found, abs=0.06)


REUSES = st.builds(
    Reuse,
    groups=st.integers(1, 500).map(float),
    prompts=st.integers(1, 200).map(float),
    shared_tokens=st.integers(0, 100_000).map(float),
    tail_tokens=st.integers(0, 5000).map(float),
    share=st.floats(0.01, 1.0),
)


@given(reuse=REUSES, capacities=st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)))
def test_a_larger_cache_never_finds_less(reuse: Reuse, capacities: tuple[int, int]) -> None:
    less, more = (reuse.hit_share(capacity) for capacity in sorted(capacities))
    assert 0 <= less <= more <= 1


@given(reuse=REUSES, wanted=st.floats(0.0, 0.999))
def test_the_capacity_that_is_asked_for_is_enough(reuse: Reuse, wanted: float) -> None:
    assert reuse.hit_share(reuse.capacity_for(wanted) * (1 + 1e-9)) >= wanted - 1e-6


def test_a_cache_that_holds_everything_forgets_nothing() -> None:
    reuse = Reuse(groups=6, prompts=10, shared_tokens=8000, tail_tokens=1280)
    assert reuse.all_tokens == 6 * 8000 + 60 * 1280
    assert reuse.hit_share(reuse.all_tokens) == 1.0
    assert reuse.most == pytest.approx(54)
    assert reuse.hit_share(7999) == 0.0
