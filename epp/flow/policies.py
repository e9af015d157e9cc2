"""Every detector and policy that a configuration may name."""

from __future__ import annotations

from typing import Any

from epp.flow.concurrency import ConcurrencyDetector
from epp.flow.fairness import GlobalStrict, RoundRobin
from epp.flow.limits import PriorityHoldback, SoftReflectiveCeiling, StaticUsageLimit
from epp.flow.ordering import ORDERINGS
from epp.flow.program import ProgramAware
from epp.flow.utilization import UtilizationDetector
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
"""To add one of ours: its file, and its class here."""
