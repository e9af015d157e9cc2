"""The detectors of full endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from epp.flowcontrol.detectors import (
    ConcurrencyDetector,
    ConcurrencyParameters,
    UtilizationDetector,
    UtilizationParameters,
)
from epp.flowcontrol.saturation import Gauge, SaturationDetector, saturation_of
from scorers.base import Candidate, NoParameters, Request, Silence, Slot

REQUEST = Request("r", "m", "m")


def endpoint(slot: int = 0, *, role: str | None = None, **numbers: Any) -> Candidate:
    labels = {} if role is None else {"llm-d.ai/role": role}
    return Candidate(Slot(slot), f"10.0.0.{slot}:80", labels=labels, **numbers)


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ([endpoint()], 0.0),
        ([endpoint(waiting=5)], 1.0),
        ([endpoint(waiting=10), endpoint()], 1.0),
        ([endpoint(kv_usage=0.4), endpoint()], 0.25),
        ([endpoint(kv_usage=0.4, waiting=4)], 0.8),
        ([endpoint(fresh=False), endpoint()], 0.5),
    ],
)
def test_utilization_is_the_mean_of_the_fuller_of_queue_and_memory(
    endpoints: Sequence[Candidate], expected: float
) -> None:
    assert UtilizationDetector().saturation(endpoints) == pytest.approx(expected)


def test_a_pool_is_as_full_as_those_of_its_endpoints_that_requests_may_go_to() -> None:
    busy = endpoint(waiting=4, in_flight=8)
    gone = [endpoint(slot, fresh=False, silence=Silence.GONE) for slot in (1, 2)]
    late = endpoint(1, fresh=False)
    for detector, alone in (
        (UtilizationDetector(), 0.8),
        (ConcurrencyDetector(ConcurrencyParameters(max_concurrency=10)), 0.8),
    ):
        assert Gauge(detector, lambda: [busy, *gone]).read().effective == pytest.approx(alone)
        assert Gauge(detector, lambda: [busy, late]).read().effective == pytest.approx(alone)
    assert Gauge(UtilizationDetector(), lambda: gone).read().effective == 1.0, "nobody to send requests to"


def test_the_utilization_filter_drops_the_full_and_the_stale_unless_that_is_everybody() -> None:
    detector = UtilizationDetector(UtilizationParameters(headroom=0.4))
    calm, busy, full, stale = endpoint(), endpoint(1, waiting=6), endpoint(2, waiting=7), endpoint(3, fresh=False)
    assert list(detector.keep(REQUEST, [calm, busy, full, stale])) == [calm, busy]
    assert list(detector.keep(REQUEST, [full, stale])) == [full, stale]


@pytest.mark.parametrize(("mode", "expected"), [("requests", 0.3), ("tokens", 0.625), ("hybrid", (0.5 + 1.0) / 2)])
def test_concurrency_is_what_is_in_flight_over_what_fits(mode: Any, expected: float) -> None:
    detector = ConcurrencyDetector(
        ConcurrencyParameters(concurrency_mode=mode, max_concurrency=10, max_token_concurrency=1000)
    )
    endpoints = [endpoint(in_flight=5, in_flight_tokens=250), endpoint(1, in_flight=1, in_flight_tokens=1000)]
    assert detector.saturation(endpoints) == pytest.approx(expected)


def test_the_concurrency_filter_keeps_its_limit_even_if_no_endpoint_is_left() -> None:
    detector = ConcurrencyDetector(ConcurrencyParameters(max_concurrency=10, headroom=0.2))
    calm, busy, full = endpoint(), endpoint(1, in_flight=11), endpoint(2, in_flight=12)
    assert list(detector.keep(REQUEST, [calm, busy, full])) == [calm, busy]
    assert list(detector.keep(REQUEST, [full])) == []


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ([(None, 5)], (1.0, None, 1.0)),
        ([("prefill", 5), ("decode", 0)], (1.0, 1.0, 0.0)),
        ([("prefill", 0), ("decode", 5)], (1.0, 0.0, 1.0)),
        ([("prefill", 5), ("both", 0), ("decode", 5)], (0.5, 0.5, 0.5)),
        ([("encode-prefill", 5), ("prefill-decode", 0)], (0.5, 0.5, 0.0)),
        ([("prefill", 5)], (1.0, 1.0, None)),
        ([("encode", 5)], (1.0, None, None)),
        ([("encode", 50), (None, 0)], (0.0, 0.0, 0.0)),
    ],
)
def test_the_fullest_stage_counts(
    roles: list[tuple[str | None, int]], expected: tuple[float, float | None, float | None]
) -> None:
    endpoints = [endpoint(slot, role=role, waiting=waiting) for slot, (role, waiting) in enumerate(roles)]
    assert tuple(saturation_of(UtilizationDetector(), endpoints)) == expected


def test_a_pool_without_endpoints_is_full() -> None:
    assert saturation_of(UtilizationDetector(), ()).effective == 1.0


numbers = st.builds(
    endpoint,
    st.integers(0, 9),
    role=st.sampled_from([None, "prefill", "decode", "encode", "both", "other"]),
    waiting=st.integers(0, 1000),
    kv_usage=st.floats(0, 1),
    in_flight=st.integers(0, 1000),
    in_flight_tokens=st.integers(0, 10**7),
    fresh=st.booleans(),
)
DETECTORS: list[SaturationDetector[Any]] = [
    UtilizationDetector(),
    *(ConcurrencyDetector(ConcurrencyParameters(concurrency_mode=mode)) for mode in ("requests", "tokens", "hybrid")),
]


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: repr(d)[:70])
@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=6), st.integers(0, 5))
def test_more_load_is_never_less_full(detector: SaturationDetector[Any], pool: list[Candidate], which: int) -> None:
    before = saturation_of(detector, pool).effective
    position = which % len(pool)
    one = pool[position]
    more = msgspec.structs.replace(
        one,
        waiting=one.waiting + 1,
        kv_usage=min(1.0, one.kv_usage + 0.1),
        in_flight=one.in_flight + 1,
        in_flight_tokens=one.in_flight_tokens + 100,
    )
    after = saturation_of(detector, [*pool[:position], more, *pool[position + 1 :]]).effective
    assert 0.0 <= before <= after + 1e-9
    kept = list(detector.keep(REQUEST, pool))
    assert [c for c in pool if c in kept] == kept


def test_a_gauge_asks_once_for_the_same_endpoints_and_survives_a_detector_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(SaturationDetector[NoParameters]):
        type_name = "broken"
        asked = 0

        @override
        def saturation(self, candidates: Sequence[Candidate]) -> float:
            self.asked += 1
            raise ZeroDivisionError("a fault")

        @override
        def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
            return candidates

    broken, pool = Broken(), (endpoint(),)
    gauge = Gauge(broken, lambda: pool)
    assert [gauge.read().effective for _ in range(3)] == [0.0] * 3
    assert (broken.asked, gauge.failures) == (1, 1)
    assert "a fault" in caplog.text
