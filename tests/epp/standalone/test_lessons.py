"""The start reports that prices are learned only from a small sample."""

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
def test_who_sees_enough_or_learns_nothing_anyway_is_told_nothing(
    config: str, sample_rate: float, mode: ResponseMode
) -> None:
    assert lines_about_learning(config, sample_rate=sample_rate, mode=mode) == ([], [])
