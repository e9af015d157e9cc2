"""Send a request to the endpoints whose label equals a request header."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.base import Candidate, Request, Scorer
from scorers.parameters import check_written


class HeaderLabelParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The header and the label to compare; both are required."""

    header_name: str = ""
    """Name of the request header, in any case."""
    label_key: str = ""
    """Key of the endpoint label."""


class HeaderLabelAffinityScorer(Scorer[HeaderLabelParameters]):
    """Score 1 where the label is the header's value and 0 elsewhere; 0 for all without the header.

    Reads: Request.headers, Candidate.labels.
    """

    type_name = "header-label-affinity-scorer"
    Parameters = HeaderLabelParameters

    def __init__(self, parameters: HeaderLabelParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        if parameters is not None:
            check_written("headerName", parameters.header_name)
            check_written("labelKey", parameters.label_key)
        self._header = self.parameters.header_name.lower()

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by its label."""
        wanted = request.headers.get(self._header)
        if not wanted:
            return [0.0] * len(candidates)
        label = self.parameters.label_key
        return [1.0 if c.labels.get(label) == wanted else 0.0 for c in candidates]
