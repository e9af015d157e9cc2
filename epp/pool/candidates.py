"""The endpoints that a request may be placed at: those that the proxy allows, and that are likely to answer.

The rule for the endpoints that the proxy allows (``Silence`` is the reason why one is not fresh):

1. An endpoint that is gone or was never read is a candidate only while no other is fresh or late. Its numbers mean
   nothing.
2. A late endpoint is a candidate while fewer than half of the fresh and late ones together are fresh. Then it is likely
   that the metrics are slow, or the picker that reads them, and not the engines; and the few fresh ones would break
   under the load of all. A late endpoint never looks less loaded than the most loaded fresh one, so that it shares the
   load once the fresh ones have some.
3. If no endpoint is fresh, the late ones are candidates, by their last numbers and what was sent since; if none is late
   either, all are.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from epp.errors import NoEndpoints
from scorers.base import Candidate, Silence


def allowed(candidates: Sequence[Candidate], subset: frozenset[str] | None) -> Sequence[Candidate]:
    """Return the ``candidates`` that the proxy allows; an entry without a port means every port of that address.

    Raises: NoEndpoints if there are none.
    """
    if subset is not None:
        names = subset | {entry.strip("[]") for entry in subset}
        candidates = [c for c in candidates if c.address in names or host_of(c.address) in names]
    if not candidates:
        raise NoEndpoints("failed to find endpoint candidates for serving the request")
    return candidates


def serving(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the ``candidates`` that a request may go to by the rule above, the fresh ones first."""
    fresh = [c for c in candidates if c.fresh]
    if len(fresh) == len(candidates):
        return candidates
    late = [c for c in candidates if not c.fresh and c.silence is Silence.LATE]
    if not fresh:
        return late or candidates
    return fresh if len(fresh) >= len(late) else [*fresh, *_levelled(late, fresh)]


def _levelled(late: Sequence[Candidate], fresh: Sequence[Candidate]) -> list[Candidate]:
    """Return ``late``, each with at least the load of the most loaded of ``fresh``."""
    waiting = max(c.waiting for c in fresh)
    running = max(c.running for c in fresh)
    kv_usage = max(c.kv_usage for c in fresh)
    return [
        structs.replace(
            c, waiting=max(c.waiting, waiting), running=max(c.running, running), kv_usage=max(c.kv_usage, kv_usage)
        )
        for c in late
    ]


def fresh_first(chosen: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return ``chosen`` with the pick first, then its fresh fallbacks, then the others."""
    return (*chosen[:1], *sorted(chosen[1:], key=lambda candidate: not candidate.fresh))


def host_of(address: str) -> str:
    """Return the host of ``host:port``, without the brackets of an IPv6 host."""
    return address.rpartition(":")[0].strip("[]")
