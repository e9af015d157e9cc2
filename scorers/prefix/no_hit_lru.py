"""Spread requests without a cache hit, so that new prefixes do not pile up on one endpoint."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated

import msgspec

from scorers.base import Candidate, Request, Scorer, Scratch


class NoHitLruParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many endpoints are remembered, and which producers decide whether a request is cold."""

    lru_size: Annotated[int, msgspec.Meta(ge=1)] = 1024
    """Number of endpoints remembered."""
    prefix_match_info_producer_name: str | None = None
    """The producer whose cached prefixes are read; None reads all of them, since a prefix in CPU memory is not cold
    either."""


class NoHitLruScorer(Scorer[NoHitLruParameters]):
    """Score a cold request highest where a cold one was served least recently, and any other request 0.5.

    Of n candidates, the one at position i of the order gets 1 - i / (n - 1). First in the order are the endpoints that
    were never given a cold request, by slot; then the others, least recently served first.

    Invariant: ``_served`` holds at most ``lru_size`` addresses, least recent first. Owner: the event loop.
    """

    type_name = "no-hit-lru-scorer"
    Parameters = NoHitLruParameters

    def __init__(self, parameters: NoHitLruParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._served: OrderedDict[str, int] = OrderedDict()
        self._picks = 0
        self._cold = Scratch[bool]()  # in each request that was scored

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by how long ago it was given a cold request."""
        cold = not self._has_hit(request, candidates)
        self._cold.put(request, cold)
        if not cold:
            return [0.5] * len(candidates)
        last = len(candidates) - 1
        if last < 1:
            return [1.0] * len(candidates)
        served = self._served.get
        order = sorted((served(c.address, -1), c.slot, i) for i, c in enumerate(candidates))
        scores = [0.0] * len(candidates)
        for position, (_, _, i) in enumerate(order):
            scores[i] = 1.0 - position / last
        return scores

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Remember the endpoint of a cold request as the most recent."""
        if not self._cold.take(request):
            return
        self._picks += 1
        self._served[candidate.address] = self._picks
        self._served.move_to_end(candidate.address)
        if len(self._served) > self.parameters.lru_size:
            self._served.popitem(last=False)

    def state(self) -> object:
        """Return the endpoints that were given cold requests, the least recent first; at most 100 of them."""
        return {"endpoints": list(self._served)[:100], "total_endpoints": len(self._served)}

    def _has_hit(self, request: Request, candidates: Sequence[Candidate]) -> bool:
        name = self.parameters.prefix_match_info_producer_name
        if name is None:
            seen = list(request.cached.values())
        else:
            seen = [request.cached[name]] if name in request.cached else []
        return any(cached.weighed.get(c.slot, 0) > 0 for cached in seen if cached.weighed for c in candidates)
