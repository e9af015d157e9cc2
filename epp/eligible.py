"""Among which endpoints a request may be placed: those that the proxy allows, and whose engines still answer."""

from __future__ import annotations

from collections.abc import Sequence

from epp.errors import NoEndpoints
from scorers.base import Candidate


def allowed(candidates: Sequence[Candidate], subset: frozenset[str] | None) -> Sequence[Candidate]:
    """Those of ``candidates`` that the proxy allows; an entry without a port means every port of that address.

    Raises: NoEndpoints when there are none.
    """
    if subset is not None:
        names = subset | {entry.strip("[]") for entry in subset}
        candidates = [c for c in candidates if c.address in names or host_of(c.address) in names]
    if not candidates:
        raise NoEndpoints("failed to find endpoint candidates for serving the request")
    return candidates


def fresh(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Those whose engine still answers: its metrics are served beside its API, so one whose metrics have been out of
    reach for seconds is stuck or gone, and would look idle.

    All of them, when that would leave less than half: the few would break under the load of the many, or it is the
    metrics that are broken.
    """
    kept = [c for c in candidates if c.fresh]
    return kept if len(kept) * 2 >= len(candidates) else candidates


def host_of(address: str) -> str:
    """``host:port`` without its port, and without the brackets of an IPv6 host."""
    return address.rpartition(":")[0].strip("[]")
