"""Warns of waits in the configuration that are longer than Envoy waits."""

from __future__ import annotations

from dataclasses import replace

from epp.config.plan import Plan
from epp.flowcontrol.admission import MOST_PATIENCE_S
from epp.flowcontrol.queue import LATE_S

LONGEST_S = MOST_PATIENCE_S - LATE_S
"""The longest that a request may wait while its proxy does."""


def warned_of_waits(plan: Plan) -> Plan:
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
