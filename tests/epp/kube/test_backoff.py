"""Waits grow while the API server refuses, and stay short while it is away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.errors import ConfigError
from epp.kube.backoff import LONGEST_UNANSWERED_S, LONGEST_WAIT_S, Backoff
from epp.kube.errors import KubeError, Refused, Unreachable

AWAY = Unreachable("no connection")
FORBIDDEN = Refused("403", status=403)


def waits(errors: list[KubeError | ConfigError], random: float = 0.999) -> list[float]:
    backoff = Backoff(lambda: random)
    return [backoff.wait_s(error) for error in errors]


def test_refusals_double_the_wait_up_to_half_a_minute() -> None:
    found = waits([FORBIDDEN] * 12)
    assert found[:3] == pytest.approx([0.25, 0.5, 1.0], rel=0.01)
    assert found[-1] == pytest.approx(LONGEST_WAIT_S, rel=0.01)
    assert waits([ConfigError("no token")] * 12)[-1] == pytest.approx(LONGEST_WAIT_S, rel=0.01)


def test_an_api_server_that_is_away_is_found_again_soon() -> None:
    assert waits([AWAY] * 100)[-1] == pytest.approx(LONGEST_UNANSWERED_S, rel=0.01)


def test_the_first_refusals_of_a_server_that_starts_wait_as_short_as_any_first_failure() -> None:
    assert waits([AWAY] * 50 + [FORBIDDEN])[-1] == pytest.approx(0.25, rel=0.01)


def test_a_wait_that_was_asked_for_is_kept_up_to_the_limit() -> None:
    asked = Refused("429", status=429, retry_after_s=7.0)
    assert waits([asked]) == [7.0]
    assert waits([Refused("429", status=429, retry_after_s=7000.0)]) == [LONGEST_WAIT_S]


@given(st.lists(st.sampled_from([AWAY, FORBIDDEN, ConfigError("no token")])), st.floats(0, 1, exclude_max=True))
def test_every_wait_is_bounded_and_never_nothing(errors: list[KubeError | ConfigError], random: float) -> None:
    for error, wait in zip(errors, waits(errors, random), strict=True):
        most = LONGEST_UNANSWERED_S if error is AWAY else LONGEST_WAIT_S
        assert 0.1 < wait <= most
