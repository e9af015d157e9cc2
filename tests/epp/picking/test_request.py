"""The request that plugins see, made from its headers and its body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.decision import RequestHead
from epp.metrics.series import Names
from epp.picking.request import FAIRNESS_ID, MAX_FAIRNESS_ID_BYTES, fairness_id_of
from tests.epp.doubles import World, completion

LONG = MAX_FAIRNESS_ID_BYTES


def flow(name: str) -> str:
    return fairness_id_of(RequestHead({FAIRNESS_ID[0]: name}))


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=LONG).filter(lambda n: len(n.encode()) <= LONG))
def test_a_flow_of_usual_length_has_its_own_name(name: str) -> None:
    assert flow(name) == name


@given(st.text(st.characters(), max_size=4), st.integers(LONG, 50_000), st.sampled_from(["", "b", "\ud800"]))
def test_of_a_long_name_a_short_one_is_left_that_begins_alike(begin: str, count: int, end: str) -> None:
    name = begin + "a" * count + end
    short = flow(name)
    assert len(short.encode()) <= LONG
    assert short.startswith(name.encode("utf-8", "replace").decode()[:48])
    assert short == flow(name)


@pytest.mark.parametrize("other", ["a" * 50_001, "a" * 49_999 + "b", "b" + "a" * 49_999])
def test_two_long_names_stay_two(other: str) -> None:
    assert flow("a" * 50_000) != flow(other)


def test_a_long_flow_has_one_short_name_here_and_in_the_metrics() -> None:
    for name in ("a" * 50_000, "é" * 5_000, "a" * (LONG + 1)):
        assert Names().bounded(flow(name)) == flow(name)


@pytest.mark.parametrize("body", [b"", completion()])
def test_nothing_that_is_kept_of_a_request_has_the_long_name(body: bytes) -> None:
    world = World()
    head = RequestHead({FAIRNESS_ID[0]: "a" * 50_000})
    decision = world.director.decide(head, body) if body else world.director.decide_bodiless(head)
    assert len(decision.labels.fairness_id) <= LONG
    assert decision.request is None or decision.request.fairness_id == decision.labels.fairness_id
