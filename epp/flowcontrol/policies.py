"""The list of detectors and policies that a configuration may name."""

from __future__ import annotations

from typing import Any

from epp.flowcontrol.detectors import ConcurrencyDetector, UtilizationDetector
from epp.flowcontrol.fairness import GlobalStrict, ProgramAware, RoundRobin
from epp.flowcontrol.limits import PriorityHoldback, SoftReflectiveCeiling, StaticUsageLimit
from epp.flowcontrol.ordering import ORDERINGS
from scorers.base import Plugin

POLICIES: tuple[type[Plugin[Any]], ...] = (
    UtilizationDetector,
    ConcurrencyDetector,
    GlobalStrict,
    RoundRobin,
    ProgramAware,
    *ORDERINGS,
    StaticUsageLimit,
    PriorityHoldback,
    SoftReflectiveCeiling,
)
"""To add a policy, write its class and add it here."""
