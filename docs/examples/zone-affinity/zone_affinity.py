"""Send a request to an endpoint in the zone that its client asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from scorers.base import Candidate, Request, Scorer


class ZoneAffinityParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where the two zones are written."""

    header_name: Annotated[str, msgspec.Meta(min_length=1)] = "x-zone"
    """Of the request."""
    label: Annotated[str, msgspec.Meta(min_length=1)] = "zone"
    """Of the endpoint."""


class ZoneAffinityScorer(Scorer[ZoneAffinityParameters]):
    """Score 1 in the request's zone and 0 elsewhere; a request without a zone is at home everywhere.

    Reads: Request.headers, Candidate.labels.
    """

    type_name = "zone-affinity-scorer"
    Parameters = ZoneAffinityParameters

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """One score per candidate, by its zone."""
        zone = request.headers.get(self.parameters.header_name.lower())  # names arrive in lower case
        if zone is None:
            return [0.0] * len(candidates)
        return [float(c.labels.get(self.parameters.label) == zone) for c in candidates]
