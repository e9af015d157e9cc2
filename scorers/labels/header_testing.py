"""Let a conformance test choose where its requests go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from scorers.base import Candidate, Filter, Request

HEADER = "test-epp-endpoint-selection"
SERVED = "x-conformance-test-served-endpoint"
"""The response header with the endpoint that answered according to the proxy. Left out if the proxy does not
report it."""


class HeaderTestingParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What becomes of a request without the header."""

    keep_without_header: bool = False
    """Whether such a request may go to every endpoint; otherwise to none."""


class HeaderTestingFilter(Filter[HeaderTestingParameters]):
    """Keep the endpoints that the header ``test-epp-endpoint-selection`` names, by ``ip`` or ``ip:port``.

    For conformance tests only: any client can choose endpoints with it, and a request without the header is refused
    unless ``keepWithoutHeader`` is set.

    Reads: Request.headers, Candidate.address.
    """

    type_name = "header-based-testing-filter"
    Parameters = HeaderTestingParameters

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the named candidates; without the header all or none, as the parameter tells."""
        named = {name.strip() for name in request.headers.get(HEADER, "").split(",")} - {""}
        if not named:
            return candidates if self.parameters.keep_without_header else []
        named |= {name.strip("[]") for name in named}
        return [c for c in candidates if c.address in named or c.address.rpartition(":")[0].strip("[]") in named]

    def response_headers(self, request: Request, candidate: Candidate) -> Mapping[str, str]:  # noqa: ARG002
        """Return the header to set; its final value is the endpoint that the proxy reports, whatever was picked."""
        return {SERVED: candidate.address}
