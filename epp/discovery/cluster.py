"""Endpoints from the pods of a Kubernetes namespace, followed by a watch.

Changes are gathered for a moment and applied one by one in constant time, so that a rollout of 1,000 pods stalls no
pick. During an outage of the API server the last endpoints stay in use; scrapes show which of them are gone.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence

from epp.discovery.claims import Claims
from epp.discovery.pods import PodEndpoint, endpoints_of
from epp.kube.client import Client
from epp.kube.follow import Follower, Kind
from epp.kube.objects import Pod
from epp.metrics.gauges import Reading
from epp.pool.pool import MAX_ENDPOINTS, Pool
from epp.runtime.background import Chore
from epp.runtime.logs import counted

log = logging.getLogger(__name__)

GATHER_S = 0.02
"""How long changes are gathered before they are applied. A guess: a rollout's events come in bursts, and each
application makes a new snapshot of the pool."""


class PodDiscovery:
    """Keeps a pool equal to the ready pods that a label selector matches. Owner: the event loop."""

    def __init__(
        self,
        pool: Pool,
        client: Client,
        *,
        namespace: str,
        selector: str,
        ports: Sequence[int],
        gather_s: float = GATHER_S,
        most: int = MAX_ENDPOINTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._ports = pool, tuple(ports)
        self._gather_s, self._most, self._clock = gather_s, most, clock
        kind = Kind(f"/api/v1/namespaces/{namespace}/pods", Pod, selector)
        self._follower = Follower(client, kind, self, random=random.random, clock=clock)
        self._claims = Claims()
        self._used: dict[str, tuple[object, ...]] = {}  # the identity of the endpoint in the pool, by address
        self._dirty: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._disputed: set[str] = set()
        self._warned: set[str] = set()  # addresses that were disputed since a pod has them: one warning for each
        self._left_out = 0
        self._chore: Chore | None = None

    @property
    def loaded(self) -> bool:
        """Whether a whole list of pods was ever read; before that, no request should be served."""
        return self._follower.synced

    @property
    def trouble(self) -> str | None:
        """The error of the last request to the API server; None while it answers."""
        return self._follower.trouble

    async def start(self) -> None:
        """Begin to follow. Returns before the first list is there: a picker without an API server stays up."""
        self._chore = Chore("pod-discovery", self._follower.run)

    async def stop(self) -> None:
        """Stop following; the pool stays as it is."""
        if self._timer is not None:
            self._timer.cancel()
        if self._chore is not None:
            await self._chore.stop()

    def listed(self, objects: list[Pod]) -> Iterator[None]:
        """Make the pool equal to a list of all pods."""
        gone = set(self._claims.pods()) - {_key(pod) for pod in objects}
        for pod in gone:
            self._dirty |= self._claims.put(pod, ())
        for item in objects:
            self._dirty |= self._claims.put(_key(item), endpoints_of(item, self._ports))
            yield
        self._apply()
        log.info("%s, %s", counted(len(objects), "pod"), counted(len(self._pool), "endpoint"))

    def changed(self, item: Pod) -> None:
        """Gather the change of one pod."""
        if not self._is_late(item):
            self._gather(self._claims.put(_key(item), endpoints_of(item, self._ports)))

    def removed(self, item: Pod) -> None:
        """Gather the end of one pod, or that its labels are not selected any more."""
        if not self._is_late(item):
            self._gather(self._claims.put(_key(item), ()))

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        follower = self._follower
        for name, text, count in (
            ("tierwise_discovery_pod_lists", "Whole lists of pods that were read.", follower.lists),
            ("tierwise_discovery_pod_events", "Events of pods that were applied.", follower.events),
            ("tierwise_discovery_errors", "Requests to the API server that failed.", follower.failures),
        ):
            yield Reading(name, text, (), [((), count)], counter=True)
        age = 0.0 if follower.heard_at is None else self._clock() - follower.heard_at
        current = float(self.loaded and self.trouble is None)
        for name, text, value in (
            ("tierwise_discovery_current", "1 while the API server is followed.", current),
            ("tierwise_discovery_age_seconds", "Time since the API server last sent something.", age),
            ("tierwise_discovery_disputed_addresses", "Addresses that several pods have.", len(self._disputed)),
            ("tierwise_discovery_left_out", "Endpoints beyond the most that a pool holds.", self._left_out),
        ):
            yield Reading(name, text, (), [((), value)])

    def _gather(self, addresses: set[str]) -> None:
        self._dirty |= addresses
        if self._dirty and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._gather_s, self._apply)

    def _apply(self) -> None:
        """Bring every dirty address of the pool up to date."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        dirty, self._dirty = self._dirty, set()
        holders = list[PodEndpoint]()
        for address in sorted(dirty):  # in the order of addresses, so that equal events make equal pools
            self._note_dispute(address)
            holder = self._claims.holder(address)
            if address in self._used and (holder is None or self._used[address] != holder.identity):
                self._pool.remove(address)
                del self._used[address]
            if holder is not None:
                holders.append(holder)
        left_out = set()
        for holder in holders:  # after every removal, which makes room
            address = holder.endpoint.address
            if address not in self._used and len(self._pool) >= self._most:
                left_out.add(address)
                continue
            self._pool.put(holder.endpoint)
            self._used[address] = holder.identity
        if left_out and not self._left_out:  # once, and not again with every change
            log.error("%d endpoints are left out: a pool holds at most %d; split the pool", len(left_out), self._most)
        self._left_out = len(left_out)
        self._dirty = left_out  # tried again with the next change

    def _is_late(self, item: Pod) -> bool:
        """Whether ``item`` is an older pod than the one that has its name now, such as a StatefulSet makes anew."""
        now = self._claims.of(_key(item))
        return (
            bool(now) and now[0].identity[0] != item.metadata.uid and item.metadata.creation_timestamp < now[0].created
        )

    def _note_dispute(self, address: str) -> None:
        pods = self._claims.disputed(address)
        if pods and address not in self._warned:
            log.warning("%s is the address of %s: the youngest pod has it", address, " and ".join(pods))
            self._warned.add(address)
        if self._claims.holder(address) is None:
            self._warned.discard(address)
        (self._disputed.add if pods else self._disputed.discard)(address)


def _key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
