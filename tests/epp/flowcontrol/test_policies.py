"""Ceilings, and fairness between programs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.decision import Usage
from epp.flowcontrol.fairness import MAX_PROGRAMS, ProgramAware
from epp.flowcontrol.limits import HoldbackParameters, PriorityHoldback, SoftReflectiveCeiling, UsageLimitPolicy
from epp.flowcontrol.policies import POLICIES
from epp.flowcontrol.settings import BandSettings, FlowSettings
from tests.epp.flowcontrol.doubles import Room, Stage, arrival

LIMITS: list[type[UsageLimitPolicy[Any]]] = [kind for kind in POLICIES if issubclass(kind, UsageLimitPolicy)]


@pytest.mark.parametrize("kind", LIMITS)
@settings(deadline=None)
@given(st.sets(st.integers(-100, 100), min_size=1, max_size=6), st.floats(0, 2))
def test_a_higher_priority_never_has_a_lower_ceiling(
    kind: type[UsageLimitPolicy[Any]], priorities: set[int], saturation: float
) -> None:
    ceilings = kind().ceilings(saturation, sorted(priorities, reverse=True))
    assert len(ceilings) == len(priorities)
    assert all(0.0 <= ceiling <= 1.0 for ceiling in ceilings)
    assert ceilings[0] == max(ceilings)
    if kind is not SoftReflectiveCeiling:  # whose lower bands take turns
        assert list(ceilings) == sorted(ceilings, reverse=True)


def test_holdback_is_a_line_by_rank_or_by_value() -> None:
    by_rank = PriorityHoldback(HoldbackParameters(min_ceiling=0.4, max_ceiling=0.8))
    assert by_rank.ceilings(0.0, [100, 1, 0]) == pytest.approx([0.8, 0.6, 0.4])
    by_value = PriorityHoldback(HoldbackParameters(min_ceiling=0.0, domain="value"))
    assert by_value.ceilings(0.0, [100, 25, 0]) == pytest.approx([1.0, 0.25, 0.0])


def test_holdback_requires_its_ceiling() -> None:
    with pytest.raises(ValueError, match="minCeiling is required"):
        PriorityHoldback(HoldbackParameters())
    with pytest.raises(ValueError, match=r"minCeiling 0\.9 is above maxCeiling 0\.5"):
        PriorityHoldback(HoldbackParameters(min_ceiling=0.9, max_ceiling=0.5))


def test_the_soft_ceiling_lets_the_lowest_on_every_nth_time() -> None:
    soft = SoftReflectiveCeiling()
    assert soft.ceilings(0.4, [1, 0]) == [1.0, 1.0]
    assert [soft.ceilings(0.8, [1, 0])[1] for _ in range(8)] == [0.0, 0.0, 0.0, 1.0] * 2
    assert soft.ceilings(1.0, [1, 0]) == [1.0, 0.0]
    assert soft.ceilings(0.9, [5]) == [1.0]


def programs() -> tuple[ProgramAware, Stage]:
    policy = ProgramAware()
    return policy, Stage(FlowSettings(detector=Room(), default=BandSettings(fairness=policy)))


def test_the_program_that_has_used_least_goes_first() -> None:
    policy, there = programs()
    policy.completed("greedy", Usage(completion_tokens=1000), 0.0)
    there.fill("g1", flow="greedy")
    there.fill("m1", "m2", flow="modest", tokens=10)
    assert there.free(1) == ["m1"]
    policy.completed("modest", Usage(completion_tokens=5000), 0.0)
    assert there.free(9) == ["g1", "m2"]


def test_the_prompt_is_charged_when_a_request_goes_on_even_at_once() -> None:
    policy, there = programs()
    there.detector.places = 1
    there.ask("a", arrival(flow="a", tokens=70))
    there.fill("b", flow="b", tokens=30)
    there.free(1)
    assert (policy.service("a", 0.0), policy.service("b", 0.0)) == (70.0, 30.0)


def test_the_past_is_forgotten_by_halves() -> None:
    policy = ProgramAware()
    policy.completed("a", Usage(completion_tokens=100), 0.0)
    assert policy.service("a", 0.0) == 200.0
    assert policy.service("a", 60.0) == 100.0
    assert policy.service("a", 120.0) == 50.0


def test_a_long_wait_makes_up_for_some_use() -> None:
    policy, there = programs()
    for flow, tokens in (("most", 100), ("more", 51), ("little", 50)):
        policy.completed(flow, Usage(completion_tokens=tokens), 0.0)
    there.fill("x", flow="more")
    there.now = 30.0
    there.fill("y", flow="little")
    there.fill("z", flow="most")
    assert there.free(1) == ["x"]


def test_the_least_recently_active_programs_are_dropped() -> None:
    policy = ProgramAware()
    for number in range(MAX_PROGRAMS + 1):
        policy.completed(str(number), Usage(completion_tokens=1), 0.0)
    assert policy.service("0", 0.0) == 0.0
    assert policy.service("1", 0.0) == 2.0
