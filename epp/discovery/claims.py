"""Decide which of several pods has an address: with the host's network two pods may name one address and port."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from epp.discovery.pods import PodEndpoint


class Claims:
    """The endpoints of all pods by address. A pod that is ready comes before one that is not.

    Of several that are, the youngest pod has the address; of two as old, the one of the greater UID.

    Each call costs O(endpoints of the pod), whatever the number of pods.
    """

    def __init__(self) -> None:
        self._by_pod: dict[str, tuple[PodEndpoint, ...]] = {}
        self._by_address: dict[str, dict[str, PodEndpoint]] = {}

    def put(self, pod: str, endpoints: Iterable[PodEndpoint]) -> Iterable[str]:
        """Make ``endpoints`` those of ``pod``, none for a pod that is gone. Returns the addresses to look at again."""
        before, after = self._by_pod.pop(pod, ()), tuple(endpoints)
        for old in before:
            claims = self._by_address[old.endpoint.address]
            del claims[pod]
            if not claims:
                del self._by_address[old.endpoint.address]
        for new in after:
            self._by_address.setdefault(new.endpoint.address, {})[pod] = new
        if after:
            self._by_pod[pod] = after
        return dict.fromkeys(one.endpoint.address for one in (*before, *after))

    def of(self, pod: str) -> tuple[PodEndpoint, ...]:
        """Return the endpoints of ``pod``; none for a pod that is gone."""
        return self._by_pod.get(pod, ())

    def pods(self) -> Iterator[str]:
        """Yield the pods that have at least one endpoint."""
        yield from tuple(self._by_pod)

    def holder(self, address: str) -> PodEndpoint | None:
        """Return the endpoint at ``address``; None where there is none."""
        claims = self._by_address.get(address)
        if claims is None:
            return None
        if len(claims) == 1:
            return next(iter(claims.values()))
        return max(claims.values(), key=lambda one: (one.ready, one.created, one.pod))

    def disputed(self, address: str) -> tuple[str, ...]:
        """Return the ready pods that claim ``address``, if they are more than one."""
        claims = self._by_address.get(address)
        if claims is None or len(claims) < 2:
            return ()
        ready = sorted(pod for pod, one in claims.items() if one.ready)
        return tuple(ready) if len(ready) > 1 else ()
