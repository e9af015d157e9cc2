"""A profile: filters narrow, scores add up, and plugins that fail are skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from epp.errors import Saturated
from epp.picking.profile import Profile
from scorers.base import CachedPrefix, Candidate, Filter, NoParameters, Picker, Producer, Request, Scorer, Slot, Tier
from scorers.load.queue import QueueScorer
from scorers.pickers import MaxScorePicker
from tests.epp.doubles import Only, candidate

REQUEST = Request(id="1", model="m", target_model="m")
THREE = tuple(Candidate(Slot(i), f"10.0.0.{i}:80", in_flight=i) for i in range(3))


class Fixed(Scorer[NoParameters]):
    """A plugin that returns what it was constructed with."""

    type_name = "fixed"

    def __init__(self, name: str, scores: Sequence[float]) -> None:
        super().__init__(name=name)
        self.scores = list(scores)
        self.learned: list[str] = []

    @override
    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        return list(self.scores)

    @override
    def picked(self, request: Request, candidate: Candidate) -> None:
        self.learned.append(candidate.address)


class Broken(Scorer[NoParameters]):
    """A plugin that raises in every call."""

    type_name = "broken"

    @override
    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        raise ZeroDivisionError("in the scorer")

    @override
    def picked(self, request: Request, candidate: Candidate) -> None:
        raise ZeroDivisionError("while learning")


class Picks(Picker[NoParameters]):
    """A plugin that returns what it was constructed with."""

    type_name = "picks"

    def __init__(self, positions: list[int]) -> None:
        super().__init__()
        self.positions = positions

    @override
    def pick(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:
        return self.positions


class Writes(Producer[NoParameters]):
    """A producer that writes given data, or raises."""

    type_name = "writes"

    def __init__(self, name: str, *, broken: bool = False) -> None:
        super().__init__(name=name)
        self.broken = broken
        self.learned: list[str] = []

    @override
    def produce(self, request: Request, candidates: Sequence[Candidate]) -> None:
        if self.broken:
            raise ZeroDivisionError("in the producer")
        request.cached[self.name] = CachedPrefix(Tier.GPU, 10, {candidates[0].slot: 10})

    @override
    def picked(self, request: Request, candidate: Candidate) -> None:
        self.learned.append(candidate.address)


def profile(
    *scorers: tuple[Scorer[NoParameters], float],
    filters: Sequence[Filter[NoParameters]] = (),
    producers: Sequence[Producer[NoParameters]] = (),
    picker: Picker[NoParameters] | None = None,
) -> Profile:
    return Profile(filters, producers, scorers, picker or MaxScorePicker())


def test_scores_are_weighted_and_summed() -> None:
    schedule = profile((Fixed("a", [1, 0, 0.5]), 2), (Fixed("b", [0, 1, 1]), 1)).schedule(REQUEST, THREE)
    assert schedule.totals == [2, 1, 2]
    assert schedule.scores == {"a": (2, [1, 0, 0.5]), "b": (1, [0, 1, 1])}
    assert schedule.chosen == (THREE[0],)


def test_scores_are_clamped_to_their_range() -> None:
    schedule = profile((Fixed("a", [7, -1, 0.5]), 2)).schedule(REQUEST, THREE)
    assert schedule.totals == [2, 0, 1]


@given(st.lists(st.tuples(st.lists(st.floats(-2, 3), min_size=3, max_size=3), st.floats(0, 10)), max_size=4))
def test_totals_are_what_a_loop_would_add_up(columns: list[tuple[list[float], float]]) -> None:
    schedule = profile(*((Fixed(str(i), c), w) for i, (c, w) in enumerate(columns))).schedule(REQUEST, THREE)
    for position in range(3):
        expected = 0.0
        for column, weight in columns:
            expected += weight * min(1.0, max(0.0, column[position]))
        assert schedule.totals[position] == expected


def test_filters_narrow_what_is_scored() -> None:
    schedule = profile((Fixed("a", [0]), 1), filters=[Only("10.0.0.2:80")]).schedule(REQUEST, THREE)
    assert schedule.candidates == schedule.chosen == (THREE[2],)


def test_nobody_left_is_saturated() -> None:
    with pytest.raises(Saturated, match="no endpoints available for the given request"):
        profile(filters=[Only("nobody")]).schedule(REQUEST, THREE)


@pytest.mark.parametrize(
    "broken",
    [
        Broken(),
        Fixed("broken", [1, 1]),
        Fixed("broken", [1, 1, 1, 1]),
        Fixed("broken", [float("nan"), 1, 1]),
        Fixed("broken", ["x", 1, 1]),  # type: ignore[list-item]
    ],
    ids=["raises", "too few", "too many", "not a number", "not numbers"],
)
def test_a_scorer_that_misbehaves_has_no_opinion(
    broken: Scorer[NoParameters], caplog: pytest.LogCaptureFixture
) -> None:
    tested = profile((broken, 5), (Fixed("a", [0, 1, 0]), 1))
    schedule = tested.schedule(REQUEST, THREE)
    assert schedule.chosen == (THREE[1],)
    assert list(schedule.scores) == ["a"]
    assert tested.failures == {"broken": 1}
    assert "Traceback" in caplog.text


def test_a_filter_that_misbehaves_keeps_everybody() -> None:
    tested = profile(filters=[Only(None)])
    assert tested.schedule(REQUEST, THREE).candidates == THREE
    assert tested.failures == {"only": 1}


def test_a_producer_that_misbehaves_leaves_the_others_alone() -> None:
    tested = profile(producers=[Writes("a", broken=True), Writes("b")])
    request = Request(id="1", model="m", target_model="m")
    tested.schedule(request, THREE)
    assert list(request.cached) == ["b"]
    assert tested.failures == {"a": 1}


@pytest.mark.parametrize("positions", [[], [3], [-1], [0, 0]], ids=str)
def test_a_picker_that_misbehaves_is_replaced_by_the_best_score(positions: list[int]) -> None:
    tested = profile((Fixed("a", [0, 1, 1]), 1), picker=Picks(positions))
    assert tested.schedule(REQUEST, THREE).chosen == (THREE[1],)
    assert tested.failures == {"picks": 1}


def test_a_picker_names_fallbacks_in_order() -> None:
    schedule = profile(picker=Picks([2, 0])).schedule(REQUEST, THREE)
    assert schedule.chosen == (THREE[2], THREE[0])


def test_producers_and_scorers_learn_the_pick_even_when_one_of_them_breaks() -> None:
    producer, scorer = Writes("p"), Fixed("s", [])
    tested = profile((Broken(), 1), (scorer, 1), producers=[producer])
    tested.picked(REQUEST, THREE[1])
    assert producer.learned == scorer.learned == ["10.0.0.1:80"]
    assert tested.failures == {"broken": 1}


class Tells(Fixed):
    """A plugin that sets response headers."""

    def __init__(self, name: str, headers: dict[str, str]) -> None:
        super().__init__(name, [])
        self.headers = headers

    def response_headers(self, request: Request, candidate: Candidate) -> dict[str, str]:
        return {**self.headers, "x-from": candidate.address}


class TellsWrongly(Tells):
    def response_headers(self, request: Request, candidate: Candidate) -> dict[str, str]:
        raise LookupError


def test_plugins_say_what_clients_are_told_and_one_that_breaks_says_nothing() -> None:
    assert not profile((Fixed("s", []), 1)).sets_response_headers
    tested = profile((Tells("a", {"x-a": "1"}), 1), (TellsWrongly("b", {}), 1), (Tells("c", {"x-a": "2"}), 1))
    assert tested.sets_response_headers
    assert tested.response_headers(REQUEST, THREE[1]) == {"x-a": "2", "x-from": "10.0.0.1:80"}
    assert tested.failures == {"b": 1}


def test_a_filter_and_a_picker_may_remember_too() -> None:
    class Remembers(Only):
        def picked(self, request: Request, candidate: Candidate) -> None:
            heard.append(candidate.address)

    class RemembersPicks(Picks):
        def picked(self, request: Request, candidate: Candidate) -> None:
            heard.append(candidate.address)

    heard: list[str] = []
    profile(filters=[Remembers(None)], picker=RemembersPicks([0])).picked(REQUEST, THREE[1])
    assert heard == ["10.0.0.1:80"] * 2


def test_a_plugin_that_always_fails_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    tested = profile((Broken(), 1))
    for _ in range(100):
        tested.schedule(REQUEST, THREE)
    assert tested.failures == {"broken": 100}
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 7


def test_every_plugin_is_timed_once_per_extension_point() -> None:
    ticks = iter(range(100))
    clock: Callable[[], float] = lambda: float(next(ticks))  # noqa: E731
    tested = Profile([Only("10.0.0.1:80")], [Writes("p")], [(Fixed("s", [1]), 1)], MaxScorePicker(), clock=clock)
    spent: list[tuple[str, str, float]] = []
    tested.time_with(lambda point, _, name: lambda seconds: spent.append((point, name, seconds)))
    tested.schedule(REQUEST, THREE)
    tested.picked(REQUEST, THREE[1])
    assert spent == [
        ("DataProducer", "p", 1.0),
        ("Filter", "only", 1.0),
        ("Scorer", "s", 1.0),
        ("Picker", "max-score-picker", 1.0),
        ("PreRequest", "p", 1.0),
        ("PreRequest", "s", 1.0),
    ]


def test_a_filter_that_leaves_none_is_timed_and_what_would_follow_is_not() -> None:
    tested = Profile([Only("nobody"), Only("10.0.0.1:80")], [], [(Fixed("s", [1]), 1)], MaxScorePicker())
    spent: list[tuple[str, str]] = []
    tested.time_with(lambda point, _, name: lambda _: spent.append((point, name)))
    with pytest.raises(Saturated):
        tested.schedule(REQUEST, THREE)
    assert spent == [("Filter", "only")]


def test_a_schedule_has_a_summary_for_the_log() -> None:
    profile = Profile([], [], [(QueueScorer(), 2.0)], MaxScorePicker())
    schedule = profile.schedule(Request(id="r", model="m", target_model="m"), [candidate(0), candidate(1)])
    assert schedule.summary().startswith(f"to {schedule.chosen[0].address}; ")
    assert f"{candidate(1).address} 2.000 = queue-scorer 2 x 1.000" in schedule.summary()


class Heads(Fixed):
    """A scorer that sets given response headers."""

    def __init__(self, name: str, headers: Any) -> None:
        super().__init__(name, [])
        self.headers = headers

    @override
    def response_headers(self, request: Request, candidate: Candidate) -> Any:
        return self.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"x-a": 7}, {"x-a": "half \ud800"}, {"x-a": "a\r\nx-evil: 1"}, {"x-a": "\x7f"}, {"x-a": None}, {"x-a": b"a"},
        {"X-A": "a"}, {"x a": "a"}, {"": "a"}, {":status": "200"}, {7: "a"}, {"x-\u00e4": "a"}, {"x-a\n": "a"}, ["x-a"],
        None,
    ],
    ids=repr,
)  # fmt: skip
def test_headers_that_cannot_be_sent_are_skipped_and_counted(headers: Any) -> None:
    bad, good = Heads("bad", headers), Heads("good", {"x-b": "ä b", "x_!": ""})
    tested = profile((bad, 1), (good, 1))
    assert tested.response_headers(REQUEST, THREE[1]) == good.headers
    assert tested.failures == {"bad": 1}
