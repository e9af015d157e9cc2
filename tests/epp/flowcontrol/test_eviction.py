"""Requests in flight that are evicted for others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from epp.errors import EppError, Evicted
from epp.flowcontrol.eviction import InFlight


class Flights:
    """Requests in flight; those in ``answering`` cannot be evicted."""

    def __init__(self) -> None:
        self.kept = InFlight()
        self.ended: list[int] = []
        self.answering: set[int] = set()

    def add(self, pick_id: int, priority: int) -> None:
        def resume(error: EppError | None) -> None:
            assert isinstance(error, Evicted)
            if pick_id not in self.answering:
                self.ended.append(pick_id)
                self.kept.discard(pick_id)

        self.kept.add(pick_id, priority, resume)


def test_the_lowest_priority_goes_first_and_of_these_the_newest() -> None:
    there = Flights()
    for pick_id, priority in enumerate((-1, -5, -5, -1)):
        there.add(pick_id, priority)
    assert there.kept.end(below=0, most=2) == 2
    assert there.kept.end(below=0, most=2) == 2
    assert there.ended == [2, 1, 3, 0]
    assert there.kept.issued == {0: 4}


def test_no_request_is_evicted_for_one_of_the_same_or_a_lower_priority() -> None:
    there = Flights()
    there.add(1, -5)
    assert there.kept.end(below=-5, most=9) == 0
    assert there.kept.end(below=-6, most=9) == 0
    assert len(there.kept) == 1


def test_one_that_has_begun_to_answer_is_left_alone_and_the_next_is_tried() -> None:
    there = Flights()
    there.add(1, -5)
    there.add(2, -5)
    there.answering = {2}
    assert there.kept.end(below=0, most=1) == 1
    assert (there.ended, len(there.kept)) == ([1], 0)


def test_an_eviction_says_what_it_is() -> None:
    error = Evicted("request evicted by flow control")
    assert (error.http_status, error.dropped_reason, error.body) == (429, "evicted", "request evicted by flow control")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-3, -1), st.booleans(), st.booleans())), st.integers(-3, 3), st.integers(0, 4))
def test_as_many_as_allowed_are_evicted_in_order_and_no_other(
    flights: list[tuple[int, bool, bool]], below: int, most: int
) -> None:
    there = Flights()
    for pick_id, (priority, answering, _) in enumerate(flights):
        there.add(pick_id, priority)
        if answering:
            there.answering.add(pick_id)
    for pick_id, (_, _, over) in enumerate(flights):
        if over:
            there.kept.discard(pick_id)
            there.kept.discard(pick_id)
    victims = sorted(
        (p, -i) for i, (p, answering, over) in enumerate(flights) if not answering and not over and p < below
    )
    assert there.kept.end(below, most) == len(victims[:most])
    assert there.ended == [-i for _, i in victims[:most]]
