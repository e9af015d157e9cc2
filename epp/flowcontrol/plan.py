"""What a configuration says of admission, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from epp.flowcontrol.saturation import SaturationDetector
from epp.flowcontrol.settings import FlowSettings
from epp.flowcontrol.utilization import UtilizationDetector


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPlan:
    """What waits is kept elsewhere, so that another plan can take it over."""

    detector: SaturationDetector[Any] = field(default_factory=UtilizationDetector)
    objectives: Mapping[str, int] = field(default_factory=dict)
    """Priorities by the names of objectives."""
    flow: FlowSettings | None = None
    """None when there are no queues."""
