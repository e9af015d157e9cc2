"""Let a test say where its requests go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scorers.base import Candidate, Filter, NoParameters, Request

HEADER = "test-epp-endpoint-selection"
SERVED = "x-conformance-test-served-endpoint"
"""Of the response: which endpoint the proxy says has answered. Left out where it says nothing."""


class HeaderTestingFilter(Filter[NoParameters]):
    """Keep the endpoints that the header ``test-epp-endpoint-selection`` names, by ``ip`` or ``ip:port``.

    For conformance tests: any client can steer with it, and a request without the header goes nowhere.

    Reads: Request.headers, Candidate.address.
    """

    type_name = "header-based-testing-filter"

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those that are named; none without the header."""
        named = {name.strip() for name in request.headers.get(HEADER, "").split(",")} - {""}
        if not named:
            return []
        named |= {name.strip("[]") for name in named}
        return [c for c in candidates if c.address in named or c.address.rpartition(":")[0].strip("[]") in named]

    def response_headers(self, request: Request, candidate: Candidate) -> Mapping[str, str]:  # noqa: ARG002
        """Asks for the header: only the proxy's own word goes into it, whatever was picked."""
        return {SERVED: candidate.address}
