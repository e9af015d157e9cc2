"""How much of a workload a cache of a given size finds again.

Requests of ``groups`` groups come in a shuffled order; each uses its group's shared prompt and leaves a tail of its
own. A least-recently-used cache evicts what was not used during its characteristic time, which is the number of
requests that fill it. A prompt is found again if its group occurred within that time. The cache is empty at first.

Source: H. Che, Y. Tung, Z. Wang, "Hierarchical Web Caching Systems" (2002), the characteristic-time approximation, here
for a shuffled order: of a group's other requests each falls into a stretch of ``d`` requests with probability d / N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_ROUNDS, _NOISE = 80, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """The requests that pass through one cache. Units: tokens."""

    groups: float
    prompts: float
    """Requests of each group, wherever they go."""
    shared_tokens: float
    """Per group, found again."""
    tail_tokens: float
    """Per request, never found again."""
    share: float = 1.0
    """The share of all requests that reach this cache; 1 where all requests of a group do."""

    @property
    def requests(self) -> float:
        """The number of requests that reach this cache."""
        return self.groups * self.prompts * self.share

    @property
    def all_tokens(self) -> float:
        """All tokens that are ever in the cache if it evicts nothing."""
        return self._used(self.requests)

    @property
    def most(self) -> float:
        """Requests whose group was here before: the hits of an unlimited cache."""
        found = self._found(self.requests)
        return found if found > _NOISE * self.requests else 0.0

    def hit_share(self, capacity_tokens: float) -> float:
        """Return the share of ``most`` that a cache of ``capacity_tokens`` finds."""
        if self.all_tokens <= capacity_tokens or not self.shared_tokens or not self.most:
            return 1.0
        if capacity_tokens < self.shared_tokens:
            return 0.0
        return min(1.0, max(0.0, self._found(self._time_for(self._used, capacity_tokens)) / self.most))

    def capacity_for(self, hit_share: float) -> float:
        """Return the tokens that a cache must hold to find ``hit_share`` of ``most``."""
        return max(self.shared_tokens, self._used(self._time_for(self._found, hit_share * self.most)))

    def _time_for(self, grows: Callable[[float], float], wanted: float) -> float:
        """Return the number of requests after which ``grows`` reaches ``wanted``."""
        low, high = 0.0, self.requests
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            low, high = (middle, high) if grows(middle) <= wanted else (low, middle)
        return high

    def _used(self, requests: float) -> float:
        """Return the tokens that ``requests`` consecutive requests use."""
        seen = self.groups * (1 - self._none_of(self.prompts, requests))
        return seen * self.shared_tokens + requests * self.tail_tokens

    def _found(self, time: float) -> float:
        """Return the number of requests whose group occurred at most ``time`` requests before."""
        everywhere = self.groups * self.prompts
        first_of_group = everywhere / self.prompts * (1 - self._none_of(self.prompts, time))
        later = self.requests - time
        return time - first_of_group + later * (1 - self._none_of(self.prompts - 1, time))

    def _none_of(self, count: float, requests: float) -> float:
        """Return the probability that none of ``count`` requests of a group falls into a stretch of ``requests``."""
        return float(max(0.0, 1 - requests / (self.groups * self.prompts)) ** count)
