"""How much of a workload a cache of some size finds again.

Requests of ``groups`` groups come in random order; each uses its group's shared prompt and leaves a tail of its own.
A least-recently-used cache forgets what was not used during its characteristic time: as many requests as it takes to
fill it. A prompt is found again if its group came up within that time.

Source: H. Che, Y. Tung, Z. Wang, "Hierarchical Web Caching Systems" (2002), the characteristic-time approximation, with
equally popular groups and tails that never come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

_ROUNDS, _CERTAIN = 80, 50


@dataclass(frozen=True, slots=True)
class Reuse:
    """What passes through one cache. Units: tokens."""

    groups: float
    shared_tokens: float
    """Of each group, found again."""
    tail_tokens: float
    """Of each request, never found again."""
    requests: float
    """In all: a cache that is not full at the end forgets nothing."""

    @property
    def all_tokens(self) -> float:
        """Everything that ever is in the cache if it forgets nothing."""
        return min(self.groups, self.requests) * self.shared_tokens + self.requests * self.tail_tokens

    def hit_share(self, capacity_tokens: float) -> float:
        """Of shared tokens asked for the second time or later, the share that is still there."""
        if self.all_tokens <= capacity_tokens or not self.shared_tokens:
            return 1.0
        if capacity_tokens < self.shared_tokens:
            return 0.0
        low, high = 0.0, _CERTAIN * self.groups
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._used(middle) <= capacity_tokens else (low, middle)
        return 1 - exp(-low / self.groups)

    def capacity_for(self, hit_share: float) -> float:
        """The tokens that a cache must hold to find ``hit_share`` (below 1) again."""
        return min(self.all_tokens, max(self.shared_tokens, self._used(-self.groups * log(1 - hit_share))))

    def _used(self, requests: float) -> float:
        """Tokens that are used by so many requests in a row."""
        return self.groups * self.shared_tokens * (1 - exp(-requests / self.groups)) + requests * self.tail_tokens
