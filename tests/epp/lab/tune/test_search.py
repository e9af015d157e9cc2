"""The search alone: which simulations it runs, which candidate it finds, and how it ends when time is up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.lab.tune.search import Round, affordable, rounds, runs_of, search

SeededCandidate = tuple[str, int]


class Bench:
    """Candidates with a fixed cost each, on seeds that are hard or easy for all of them alike."""

    def __init__(self, worth: Mapping[str, float], *, noise: float = 0.0, limit: int = 10**9) -> None:
        self.worth, self.noise, self.limit = worth, noise, limit
        self.evaluated: list[SeededCandidate] = []

    def __call__(self, wanted: Sequence[SeededCandidate]) -> Mapping[SeededCandidate, float]:
        affordable_now = list(wanted)[: max(0, self.limit - len(self.evaluated))]
        self.evaluated += affordable_now
        return {(name, seed): self._cost(name, seed) for name, seed in affordable_now}

    def _cost(self, name: str, seed: int) -> float:
        hardness = exp(Random(seed).gauss(0, 1))
        own = exp(Random(f"{name} {seed}").gauss(0, self.noise))
        return self.worth[name] * hardness * own


def worths(count: int, best: int) -> dict[str, float]:
    return {f"c{n}": 0.5 if n == best else 1.0 + n / 100 for n in range(count)}


@given(count=st.integers(1, 60), data=st.data())
def test_the_best_is_found_however_hard_the_seeds_are(count: int, data: st.DataObject) -> None:
    best = data.draw(st.integers(0, count))
    names = [f"c{n}" for n in range(count + 1)]
    found = search(names, Bench(worths(count + 1, best)), first_seed=7)
    assert found.best.name == f"c{best}"
    assert found.best.ratio == pytest.approx(1.0 if best == 0 else 0.5)
    assert found.whole
    assert sorted(s.name for s in found.standings) == sorted(names)


@given(count=st.integers(1, 60))
def test_a_search_takes_the_simulations_that_were_planned(count: int) -> None:
    bench = Bench(worths(count + 1, 1))
    found = search([f"c{n}" for n in range(count + 1)], bench, first_seed=1)
    assert found.runs == len(bench.evaluated) == len(set(bench.evaluated)) == runs_of(count)
    assert affordable(found.runs) == count


def test_every_candidate_of_a_round_runs_on_the_seeds_of_the_baseline() -> None:
    bench = Bench(worths(30, 5))
    search([f"c{n}" for n in range(30)], bench, first_seed=1)
    of_baseline = {seed for name, seed in bench.evaluated if name == "c0"}
    assert {seed for _, seed in bench.evaluated} == of_baseline == set(range(1, 1 + len(of_baseline)))


def test_few_candidates_see_many_seeds_and_many_see_few() -> None:
    assert rounds(27) == [(27, 1), (9, 2), (3, 4)]
    assert rounds(3) == [(3, 1)]
    assert rounds(9, 2) == [(9, 2), (3, 4)]
    assert runs_of(27) == 28 + 20 + 16


def test_luck_on_one_seed_does_not_win() -> None:
    """One candidate is better by a fifth, among forty equal ones, with noise of a tenth."""
    names = [f"c{n}" for n in range(41)]
    won = 0
    for first_seed in range(0, 2000, 100):
        bench = Bench(dict.fromkeys(names, 1.0) | {"c17": 0.8}, noise=0.1)
        won += search(names, bench, first_seed).best.name == "c17"
    assert won >= 14


@given(count=st.integers(1, 40), limit=st.integers(0, 200))
def test_when_time_ends_there_is_still_an_order(count: int, limit: int) -> None:
    names = [f"c{n}" for n in range(count + 1)]
    bench = Bench(worths(count + 1, 1), limit=limit)
    found = search(names, bench, first_seed=1)
    assert sorted(s.name for s in found.standings) == sorted(names)
    assert found.whole == (limit >= runs_of(count))
    assert found.runs == min(limit, runs_of(count))
    if limit < count + 1:
        assert found.best.name == "c0", "no seed was seen by all"


def test_a_baseline_that_nothing_beats_is_the_best() -> None:
    names = ["usual", "worse", "worst"]
    found = search(names, Bench({"usual": 1.0, "worse": 1.1, "worst": 2.0}), first_seed=1)
    assert [s.name for s in found.standings] == names


@given(count=st.integers(4, 60), room=st.integers(0, 200))
def test_where_time_gets_short_fewer_go_on_and_the_best_is_among_them(count: int, room: int) -> None:
    names = [f"c{n}" for n in range(count + 1)]
    bench = Bench(worths(count + 1, 2))
    first = count + 1
    found = search(names, bench, first_seed=1, room=lambda: first + room - len(bench.evaluated))
    assert found.best.name == "c2"
    assert found.whole == (room >= runs_of(count) - first)
    last = max(2 * seeds for _, seeds in rounds(count))  # a last round of one candidate and the baseline
    assert found.runs <= max(first + room, 0) + 2 * last * len(rounds(count))
    assert found.next_runs > first + room - found.runs, "there was no room for another round"


def test_where_there_is_room_after_the_last_round_the_finalists_go_on_with_new_seeds() -> None:
    names = [f"c{n}" for n in range(28)]
    bench = Bench(worths(28, 2))
    found = search(names, bench, first_seed=1, room=lambda: runs_of(27) + 40 - len(bench.evaluated))
    assert (found.runs, found.rounds, found.whole) == (runs_of(27) + 2 * 16, 3 + 2, True)
    assert found.next_runs == 16
    assert len(found.best.ratios) == 1 + 2 + 4 + 4 + 4
    assert len(bench.evaluated) == len(set(bench.evaluated))


def test_a_number_of_rounds_repeats_such_a_search() -> None:
    names = [f"c{n}" for n in range(28)]
    first, again = Bench(worths(28, 2), noise=0.3), Bench(worths(28, 2), noise=0.3)
    found = search(names, first, first_seed=1, room=lambda: runs_of(27) + 40 - len(first.evaluated))
    repeated = search(names, again, first_seed=1, most_rounds=found.rounds)
    assert again.evaluated == first.evaluated
    assert repeated.standings == found.standings
    assert repeated.next_runs == 0


def test_each_round_is_told_with_the_best_so_far() -> None:
    told: list[Round] = []
    search([f"c{n}" for n in range(28)], Bench(worths(28, 2)), first_seed=1, ended=told.append)
    assert [(each.number, each.candidates, each.seeds, each.best.name) for each in told] == [
        (1, 27, 1, "c2"),
        (2, 9, 2, "c2"),
        (3, 3, 4, "c2"),
    ]
