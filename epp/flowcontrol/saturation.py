"""How full the endpoints are, for each stage of a request and for the pool."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from epp.pool.candidates import serving
from scorers.base import Candidate, Filter

log = logging.getLogger(__name__)

P = TypeVar("P", bound=msgspec.Struct)

ROLE = "llm-d.ai/role"
PREFILL = frozenset({"prefill", "encode-prefill"})
DECODE = frozenset({"decode"})
ENCODE = frozenset({"encode"})
"""Values of the role label that serve one stage only; an endpoint with another, or none, serves prefill and decode."""


class SaturationDetector(Filter[P], ABC):
    """Measures how full endpoints are; in a profile, it is a filter that drops the full ones."""

    @abstractmethod
    def saturation(self, candidates: Sequence[Candidate]) -> float:
        """Return how full ``candidates`` (at least one) are together: 0 is idle, 1 and above are full."""


class Saturation(NamedTuple):
    """How full each stage is, and the pool, which is as full as its fullest stage; None without endpoints."""

    effective: float
    prefill: float | None = None
    decode: float | None = None


EMPTY = Saturation(1.0)
"""The saturation of a pool without endpoints."""


def saturation_of(detector: SaturationDetector[Any], candidates: Sequence[Candidate]) -> Saturation:
    """Return how full ``candidates`` are by ``detector``."""
    if not candidates:
        return EMPTY
    if not any(c.labels and ROLE in c.labels for c in candidates):
        whole = detector.saturation(candidates)
        return Saturation(whole, decode=whole)
    roles = [c.labels.get(ROLE) for c in candidates]
    stages = [
        [c for c, role in zip(candidates, roles, strict=True) if role not in strangers]
        for strangers in (DECODE | ENCODE, PREFILL | ENCODE)
    ]
    prefill, decode = (detector.saturation(stage) if stage else None for stage in stages)
    known = [value for value in (prefill, decode) if value is not None]
    return Saturation(max(known) if known else detector.saturation(candidates), prefill, decode)


class Gauge:
    """Measures how full the endpoints are that requests may go to now (``epp.pool.candidates``).

    The value is cached for one tuple of candidates, which is replaced whenever an endpoint changes. A detector may be
    third-party code: if it raises, that is logged, and the pool counts as not full. Owner: the event loop.
    """

    def __init__(self, detector: SaturationDetector[Any], candidates: Callable[[], Sequence[Candidate]]) -> None:
        self.detector = detector
        self.failures = 0
        self._candidates = candidates
        self._seen: Sequence[Candidate] | None = None
        self._value = EMPTY

    def use(self, detector: SaturationDetector[Any]) -> None:
        """Use ``detector`` from now on."""
        self.detector = detector
        self._seen = None

    @property
    def empty(self) -> bool:
        """Whether the pool has no endpoint."""
        return not self._candidates()

    def read(self) -> Saturation:
        """Return how full the pool is."""
        candidates = self._candidates()
        if candidates is not self._seen:
            self._seen = candidates
            try:
                self._value = saturation_of(self.detector, serving(candidates))
            except Exception:
                self.failures += 1
                if self.failures & (self.failures - 1) == 0:
                    log.exception("detector %r failed (%d times so far)", self.detector.name, self.failures)
                self._value = Saturation(0.0)
        return self._value
