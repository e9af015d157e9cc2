"""The configuration of admission and of the queues, as values. The queues stay when these are replaced."""

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
"""Limits of a band, and the time that a request may wait. Source: the Go picker's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandSettings:
    """The settings of one priority's queues."""

    max_bytes: int = MAX_BYTES
    max_requests: int = MAX_REQUESTS
    fairness: FairnessPolicy[Any] = field(default_factory=GlobalStrict)
    ordering: OrderingPolicy = field(default_factory=Fcfs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """The settings of all queues. Units: seconds."""

    detector: SaturationDetector[Any] = field(default_factory=UtilizationDetector)
    limits: UsageLimitPolicy[Any] = field(default_factory=StaticUsageLimit)
    max_bytes: int | None = None
    """The limit for all bands together; None for no limit."""
    max_requests: int | None = None
    ttl_s: float | None = TTL_S
    """How long a request may wait; None for as long as its client waits."""
    no_endpoint_ttl_s: float = TTL_S
    """How long a request may wait while the pool has no endpoint."""
    bands: Mapping[int, BandSettings] = field(default_factory=dict)
    """The settings by priority; these bands exist from the start."""
    default: BandSettings = field(default_factory=BandSettings)
    """The settings for a priority that is not in ``bands``."""
    default_negative: BandSettings | None = None
    """The settings for a negative priority that is not in ``bands``; None for ``default``."""
    enable_eviction: bool = False
    """Whether requests of negative priority in flight are evicted for others that wait."""

    def full(self, waiting: int, waiting_bytes: int, size_bytes: int) -> str | None:
        """Return why a request of ``size_bytes`` cannot be queued, or None if it can.

        ``waiting`` and ``waiting_bytes`` are the queued requests of all bands.
        """
        if self.max_bytes is not None and waiting_bytes + size_bytes > self.max_bytes:
            return f"{waiting_bytes} bytes wait already, and flowControl.maxBytes is {self.max_bytes}"
        if self.max_requests is not None and waiting + 1 > self.max_requests:
            return f"{waiting} requests wait already, and flowControl.maxRequests is {self.max_requests}"
        return None

    def band(self, priority: int) -> BandSettings:
        """Return the settings for ``priority``."""
        if priority in self.bands:
            return self.bands[priority]
        if priority < 0 and self.default_negative is not None:
            return self.default_negative
        return self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPlan:
    """The configuration of admission. It holds no queued request, so that another plan can replace it."""

    detector: SaturationDetector[Any] = field(default_factory=UtilizationDetector)
    objectives: Mapping[str, int] = field(default_factory=dict)
    """The priorities by the names of objectives."""
    flow: FlowSettings | None = None
    """The settings of the queues; None for no queues."""
