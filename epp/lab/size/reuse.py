"""How much of a workload a cache of some size finds again.

Requests of ``groups`` groups come in a shuffled order; each uses its group's shared prompt and leaves a tail of its
own. A least-recently-used cache forgets what was not used during its characteristic time: as many requests as it takes
to fill it. A prompt is found again if its group came up within that time. The cache is empty at first.

Source: H. Che, Y. Tung, Z. Wang, "Hierarchical Web Caching Systems" (2002), the characteristic-time approximation, here
for a shuffled order: of a group's other requests each falls into a stretch of ``d`` requests with probability d / N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_ROUNDS, _NOISE = 80, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """What passes through one cache. Units: tokens."""

    groups: float
    prompts: float
    """Requests of each group, wherever they go."""
    shared_tokens: float
    """Of each group, found again."""
    tail_tokens: float
    """Of each request, never found again."""
    share: float = 1.0
    """Of all requests, those that come here: 1 where a group's requests all do."""

    @property
    def requests(self) -> float:
        """That come here."""
        return self.groups * self.prompts * self.share

    @property
    def all_tokens(self) -> float:
        """Everything that ever is in the cache if it forgets nothing."""
        return self._used(self.requests)

    @property
    def most(self) -> float:
        """Requests that come where their group was before: those that a cache without end would find."""
        found = self._found(self.requests)
        return found if found > _NOISE * self.requests else 0.0

    def hit_share(self, capacity_tokens: float) -> float:
        """Of ``most``, the share that is still there."""
        if self.all_tokens <= capacity_tokens or not self.shared_tokens or not self.most:
            return 1.0
        if capacity_tokens < self.shared_tokens:
            return 0.0
        return min(1.0, max(0.0, self._found(self._time_for(self._used, capacity_tokens)) / self.most))

    def capacity_for(self, hit_share: float) -> float:
        """The tokens that a cache must hold to find ``hit_share`` of ``most``."""
        return max(self.shared_tokens, self._used(self._time_for(self._found, hit_share * self.most)))

    def _time_for(self, grows: Callable[[float], float], wanted: float) -> float:
        """The number of requests after which ``grows`` is ``wanted``."""
        low, high = 0.0, self.requests
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            low, high = (middle, high) if grows(middle) <= wanted else (low, middle)
        return high

    def _used(self, requests: float) -> float:
        """Tokens that are used by so many requests in a row."""
        seen = self.groups * (1 - self._none_of(self.prompts, requests))
        return seen * self.shared_tokens + requests * self.tail_tokens

    def _found(self, time: float) -> float:
        """Requests whose group came up at most ``time`` requests before."""
        everywhere = self.groups * self.prompts
        first_of_group = everywhere / self.prompts * (1 - self._none_of(self.prompts, time))
        later = self.requests - time
        return time - first_of_group + later * (1 - self._none_of(self.prompts - 1, time))

    def _none_of(self, count: float, requests: float) -> float:
        """The probability that none of ``count`` requests of a group falls into a stretch of so many."""
        return float(max(0.0, 1 - requests / (self.groups * self.prompts)) ** count)
