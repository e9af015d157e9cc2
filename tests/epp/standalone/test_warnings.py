"""The start warns of waits longer than the proxy's time limit, and of prices that are learned from a small sample."""

from __future__ import annotations

import asyncio

import pytest

from epp.standalone.command import start_picker
from epp.standalone.settings import ResponseMode
from tests.e2e.site.options import options_of

PRICED = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: tier-cost-producer, parameters: {learn: @learn}}
  - {type: tier-cost-scorer}
"""
WEIGHED = "{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [{type: queue-scorer}]}"
WAITING = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins: [{type: queue-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
flowControl: {@limits}
"""
TOO_LONG = " is longer than Envoy waits; requests are refused after 3599 s"


def lines_about_learning(
    config: str, *, sample_rate: float = 0.01, mode: ResponseMode = ResponseMode.LEAN
) -> tuple[list[str], ...]:
    """Return the warnings and the other lines of a start about learning."""

    async def scene() -> tuple[list[str], ...]:
        options = options_of(
            host="127.0.0.1",
            metrics_port=0,
            endpoint=("127.0.0.1:9",),
            config_text=config,
            sample_rate=sample_rate,
            response_mode=mode,
        )
        picker = await start_picker(options)
        await picker.stop(0.0)
        plan = picker.core.plan
        return tuple(
            [[line for line in lines if "nothing is learned yet" in line] for lines in (plan.warnings, plan.summary)]
        )

    return asyncio.run(scene())


def test_prices_that_learn_from_a_sample_say_so_with_the_flag_that_makes_it_larger() -> None:
    warnings, [line] = lines_about_learning(PRICED.replace("@learn", "true"))
    assert warnings == []
    assert "--sample-rate 0.01 of them; --sample-rate 0.1 or --response-mode full" in line


def test_prices_that_can_learn_nothing_are_a_warning() -> None:
    [warning], lines = lines_about_learning(PRICED.replace("@learn", "true"), sample_rate=0.0)
    assert lines == []
    assert "--sample-rate 0 of them" in warning


@pytest.mark.parametrize(
    ("config", "sample_rate", "mode"),
    [
        (PRICED.replace("@learn", "true"), 0.1, ResponseMode.LEAN),
        (PRICED.replace("@learn", "true"), 0.01, ResponseMode.FULL),
        (PRICED.replace("@learn", "false"), 0.01, ResponseMode.LEAN),
        (WEIGHED, 0.01, ResponseMode.LEAN),
    ],
)
def test_a_start_that_sees_enough_or_learns_nothing_anyway_has_no_such_line(
    config: str, sample_rate: float, mode: ResponseMode
) -> None:
    assert lines_about_learning(config, sample_rate=sample_rate, mode=mode) == ([], [])


@pytest.mark.parametrize(
    ("limits", "warned"),
    [
        ("", []),
        ("defaultRequestTTL: 0s", []),
        ("defaultRequestTTL: 3599s", []),
        ("defaultRequestTTL: 1h", ["flowControl.defaultRequestTTL: 3600 s"]),
        ("noEndpointRequestTTL: 2h", ["flowControl.noEndpointRequestTTL: 7200 s"]),
    ],
)
def test_a_wait_that_is_longer_than_the_proxys_patience_is_warned_of(limits: str, warned: list[str]) -> None:
    async def scene() -> tuple[str, ...]:
        options = options_of(
            host="127.0.0.1",
            metrics_port=0,
            endpoint=("127.0.0.1:9",),
            config_text=WAITING.replace("@limits", limits),
        )
        picker = await start_picker(options)
        await picker.stop(0.0)
        return picker.core.plan.warnings

    assert [line for line in asyncio.run(scene()) if "Envoy waits" in line] == [each + TOO_LONG for each in warned]
