"""Send a request to an endpoint in the zone that its client asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from scorers.base import Candidate, Request, Scorer


class ZoneAffinityParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The request header and the endpoint label that name a zone."""

    header_name: Annotated[str, msgspec.Meta(min_length=1)] = "x-zone"
    label: Annotated[str, msgspec.Meta(min_length=1)] = "zone"


class ZoneAffinityScorer(Scorer[ZoneAffinityParameters]):
    """Score 1 in the request's zone and 0 elsewhere; all 0 if the request names no zone.

    Reads: Request.headers, Candidate.labels.
    """

    type_name = "zone-affinity-scorer"
    Parameters = ZoneAffinityParameters

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by its zone."""
        zone = request.headers.get(self.parameters.header_name.lower())  # names arrive in lower case
        if zone is None:
            return [0.0] * len(candidates)
        return [float(c.labels.get(self.parameters.label) == zone) for c in candidates]
