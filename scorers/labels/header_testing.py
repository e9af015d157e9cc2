"""Let a conformance test choose where its requests go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scorers.base import Candidate, Filter, NoParameters, Request

HEADER = "test-epp-endpoint-selection"
SERVED = "x-conformance-test-served-endpoint"
"""The response header with the endpoint that answered according to the proxy. Left out if the proxy does not
report it."""


class HeaderTestingFilter(Filter[NoParameters]):
    """Keep the endpoints that the header ``test-epp-endpoint-selection`` names, by ``ip`` or ``ip:port``.

    For conformance tests only: any client can choose endpoints with it, and a request without the header is refused.

    Reads: Request.headers, Candidate.address.
    """

    type_name = "header-based-testing-filter"

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the named candidates; none without the header."""
        named = {name.strip() for name in request.headers.get(HEADER, "").split(",")} - {""}
        if not named:
            return []
        named |= {name.strip("[]") for name in named}
        return [c for c in candidates if c.address in named or c.address.rpartition(":")[0].strip("[]") in named]

    def response_headers(self, request: Request, candidate: Candidate) -> Mapping[str, str]:  # noqa: ARG002
        """Return the header to set; its final value is the endpoint that the proxy reports, whatever was picked."""
        return {SERVED: candidate.address}
