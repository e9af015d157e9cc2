"""Warns when the cost model will see too few responses to learn from, in a proxy that keeps responses to itself."""

from __future__ import annotations

from dataclasses import replace

from epp.config.plan import Plan
from epp.standalone.options import ResponseMode, StandaloneOptions
from scorers.cost.tier_cost import TierCostProducer

LITTLE = 0.1
"""A share below which learning takes long. A guess: forty observations, the least that count, within 400 requests."""


def told_of_lessons(plan: Plan, options: StandaloneOptions) -> Plan:
    """Return ``plan`` with a line about the share of requests that its prices learn from, if that is small."""
    learns = any(isinstance(each, TierCostProducer) and each.parameters.learn for each in plan.profile.producers)
    if not learns or options.response_mode is ResponseMode.FULL or options.sample_rate >= LITTLE:
        return plan
    line = (
        f"prices: nothing is learned yet, and constants are learned only from the streamed responses that the picker "
        f"sees, --sample-rate {options.sample_rate:g} of them; --sample-rate {LITTLE:g} or --response-mode full shows "
        "it more"
    )
    if not options.sample_rate:
        return replace(plan, warnings=(*plan.warnings, line))
    return replace(plan, summary=(*plan.summary, line))
