"""Warns of what a configuration asks for and a proxy of our own cannot give: waits, and responses to learn from."""

from __future__ import annotations

from dataclasses import replace

from epp.config.plan import Plan
from epp.flowcontrol.admission import MOST_PATIENCE_S
from epp.flowcontrol.queue import LATE_S
from epp.standalone.settings import ProxySettings, ResponseMode
from scorers.cost.tier_cost import TierCostProducer

LITTLE = 0.1
"""A share below which learning takes long. A guess: forty observations, the least that count, within 400 requests."""
LONGEST_S = MOST_PATIENCE_S - LATE_S
"""The longest that a request may wait while its proxy does."""


def with_learning_notes(plan: Plan, proxy: ProxySettings) -> Plan:
    """Return ``plan`` with a line about the share of requests that its prices learn from, if that is small."""
    learns = any(isinstance(each, TierCostProducer) and each.parameters.learn for each in plan.profile.producers)
    if not learns or proxy.response_mode is ResponseMode.FULL or proxy.sample_rate >= LITTLE:
        return plan
    line = (
        f"prices: nothing is learned yet, and constants are learned only from the streamed responses that the picker "
        f"sees, --sample-rate {proxy.sample_rate:g} of them; --sample-rate {LITTLE:g} or --response-mode full shows "
        "it more"
    )
    if not proxy.sample_rate:
        return replace(plan, warnings=(*plan.warnings, line))
    return replace(plan, summary=(*plan.summary, line))


def with_wait_warnings(plan: Plan) -> Plan:
    """Return ``plan`` with a warning for each wait that is longer than Envoy's own."""
    flow = plan.admission.flow
    if flow is None:
        return plan
    waits = {"defaultRequestTTL": flow.ttl_s or 0.0}
    if flow.no_endpoint_ttl_s != flow.ttl_s:
        waits["noEndpointRequestTTL"] = flow.no_endpoint_ttl_s
    warnings = [
        f"flowControl.{key}: {wait_s:g} s is longer than Envoy waits; requests are refused after {LONGEST_S:g} s"
        for key, wait_s in waits.items()
        if wait_s > LONGEST_S
    ]
    return replace(plan, warnings=(*plan.warnings, *warnings))
