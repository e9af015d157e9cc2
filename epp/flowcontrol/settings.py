"""What the configuration says of the queues, as values: the queues themselves stay when these are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from epp.flowcontrol.detectors import UtilizationDetector
from epp.flowcontrol.fairness import FairnessPolicy, GlobalStrict
from epp.flowcontrol.limits import StaticUsageLimit, UsageLimitPolicy
from epp.flowcontrol.ordering import Fcfs, OrderingPolicy
from epp.flowcontrol.saturation import SaturationDetector

MAX_BYTES, MAX_REQUESTS, TTL_S = 1_000_000_000, 5_000, 60.0
"""Of a band, of a band, of a request. Source: the Go picker's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandSettings:
    """One priority's queue."""

    max_bytes: int = MAX_BYTES
    max_requests: int = MAX_REQUESTS
    fairness: FairnessPolicy[Any] = field(default_factory=GlobalStrict)
    ordering: OrderingPolicy = field(default_factory=Fcfs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """All queues. Units: seconds."""

    detector: SaturationDetector[Any] = field(default_factory=UtilizationDetector)
    limits: UsageLimitPolicy[Any] = field(default_factory=StaticUsageLimit)
    max_bytes: int | None = None
    """Of all bands together; None for no limit."""
    max_requests: int | None = None
    ttl_s: float | None = TTL_S
    """How long a request may wait; None for as long as its client does."""
    no_endpoint_ttl_s: float = TTL_S
    """The same while the pool has no endpoint."""
    bands: Mapping[int, BandSettings] = field(default_factory=dict)
    """By priority; these exist from the start."""
    default: BandSettings = field(default_factory=BandSettings)
    """Of a priority that is not in ``bands``."""
    default_negative: BandSettings | None = None
    """Of one below 0; None for ``default``."""
    enable_eviction: bool = False
    """Whether requests of negative priority in flight are ended for others that wait."""

    def full(self, waiting: int, waiting_bytes: int, size_bytes: int) -> str | None:
        """Why a request of ``size_bytes`` cannot wait beside ``waiting`` others in all bands; None when it can."""
        if self.max_bytes is not None and waiting_bytes + size_bytes > self.max_bytes:
            return f"{waiting_bytes} bytes wait already, and flowControl.maxBytes is {self.max_bytes}"
        if self.max_requests is not None and waiting + 1 > self.max_requests:
            return f"{waiting} requests wait already, and flowControl.maxRequests is {self.max_requests}"
        return None

    def band(self, priority: int) -> BandSettings:
        """What holds for ``priority``."""
        if priority in self.bands:
            return self.bands[priority]
        if priority < 0 and self.default_negative is not None:
            return self.default_negative
        return self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPlan:
    """What waits is kept elsewhere, so that another plan can take it over."""

    detector: SaturationDetector[Any] = field(default_factory=UtilizationDetector)
    objectives: Mapping[str, int] = field(default_factory=dict)
    """Priorities by the names of objectives."""
    flow: FlowSettings | None = None
    """None when there are no queues."""
