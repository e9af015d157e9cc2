"""Keeps a pool equal to the ready pods of a list that changes.

Changes are gathered for a moment and applied one by one in constant time, in short slices, so that neither a rollout
of 1,000 pods nor the first list of 10,000 stalls a pick.

An endpoint whose pod is only not ready, and that is the same one, takes no picks but stays in the pool with all that is
known of it, for a while: its caches are where they were. So do all endpoints while there is no InferencePool.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

from epp.discovery.claims import Claims
from epp.discovery.options import KEEP_S
from epp.discovery.pods import PodEndpoint, endpoints_of
from epp.kube.objects import Pod
from epp.metrics.gauges import Reading
from epp.pool.pool import MAX_ENDPOINTS, Pool
from epp.runtime.logs import counted

log = logging.getLogger(__name__)

GATHER_S = 0.02
"""How long changes are gathered before they are applied. A guess: a rollout's events come in bursts, and each
application makes a new snapshot of the pool."""
SLICE_S = 0.002
"""How long changes are applied before other work has its turn. A guess: less than a pick's own time."""


class PoolKeeper:
    """The listener of a follower of pods, and the only one that changes the pool. Owner: the event loop."""

    def __init__(
        self,
        pool: Pool,
        *,
        keep_s: float = KEEP_S,
        gather_s: float = GATHER_S,
        most: int = MAX_ENDPOINTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ports: Sequence[int] = ()
        """The ports that each pod serves, by rank. Set before a new list of all pods."""
        self._pool, self._keep_s, self._gather_s, self._most, self._clock = pool, keep_s, gather_s, most, clock
        self._claims = Claims()
        self._dirty: OrderedDict[str, None] = OrderedDict()
        self._parked: OrderedDict[str, float] = OrderedDict()  # until when, by address; the oldest first
        self._left_out: dict[str, None] = {}
        self._complained = False
        self._disputed: set[str] = set()
        self._warned: set[str] = set()  # addresses that were disputed since a pod has them: one warning for each
        self._apply_timer: asyncio.Handle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Apply nothing any more; the pool stays as it is."""
        for timer in (self._apply_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        self._apply_timer = self._expiry_timer = None

    def listed(self, objects: list[Pod]) -> Iterator[None]:
        """Make the pool equal to a list of all pods, in small steps."""
        gone = set(self._claims.pods()).difference(_key(pod) for pod in objects)
        yield
        for pod in gone:
            self._mark(self._claims.put(pod, ()))
            yield
        for item in objects:
            self._mark(self._claims.put(_key(item), endpoints_of(item, self.ports)))
            yield
        self._mark([address for address in self._parked if self._claims.holder(address) is None])
        yield from self._settle_all()
        self._fill()
        log.info("%s, %s", counted(len(objects), "pod"), counted(len(self._pool), "endpoint"))

    def let_go(self) -> Iterator[None]:
        """Let no endpoint be picked until the next list, in small steps, since no pods are selected any more.

        Like those of pods that are not ready, the endpoints are kept for a while: a list that has them again, with the
        same identity, finds their state as it was.
        """
        yield from self._settle_all()
        self._left_out.clear()
        for pod in self._claims.pods():
            for address in self._claims.put(pod, ()):
                self._note_dispute(address)
                if address in self._pool and address not in self._parked:
                    self._park(address)
            yield

    def changed(self, item: Pod) -> None:
        """Gather the change of one pod; nothing where its endpoints stay as they are, as with most of its changes."""
        key, endpoints = _key(item), endpoints_of(item, self.ports)
        if endpoints != self._claims.of(key) and not self._is_late(item):
            self._gather(self._claims.put(key, endpoints))

    def removed(self, item: Pod) -> None:
        """Gather the end of one pod, or that its labels are not selected any more."""
        if not self._is_late(item):
            self._gather(self._claims.put(_key(item), ()))

    def apply(self) -> None:
        """Apply what was gathered, for ``SLICE_S`` at most; the rest follows when other work had its turn."""
        if self._apply_timer is not None:
            self._apply_timer.cancel()
            self._apply_timer = None
        until = time.perf_counter() + SLICE_S
        while self._dirty:
            self._settle(self._dirty.popitem(last=False)[0])
            if time.perf_counter() >= until and self._dirty:
                self._apply_timer = asyncio.get_running_loop().call_soon(self.apply)
                return
        self._fill()

    def expire(self) -> None:
        """Remove the endpoints that were not ready, or not selected, for too long."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        now = self._clock()
        while self._parked:
            address, until = next(iter(self._parked.items()))
            if until > now:
                self._expiry_timer = asyncio.get_running_loop().call_later(until - now, self.expire)
                break
            self._drop(address)
        self._fill()

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        for name, text, value in (
            ("tierwise_discovery_disputed_addresses", "Addresses that several pods have.", len(self._disputed)),
            ("tierwise_discovery_left_out", "Endpoints beyond the most that a pool holds.", len(self._left_out)),
            ("tierwise_discovery_kept_unready", "Endpoints that take no requests, and are kept.", len(self._parked)),
        ):
            yield Reading(name, text, (), [((), value)])

    def _gather(self, addresses: Iterable[str]) -> None:
        self._mark(addresses)
        if self._dirty and self._apply_timer is None:
            self._apply_timer = asyncio.get_running_loop().call_later(self._gather_s, self.apply)

    def _mark(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._dirty[address] = None

    def _settle_all(self) -> Iterator[None]:
        """Bring every address that was marked up to date, in small steps."""
        while self._dirty:
            self._settle(self._dirty.popitem(last=False)[0])
            yield

    def _settle(self, address: str) -> None:
        """Bring one address of the pool up to date. O(pods at the address)."""
        self._note_dispute(address)
        self._left_out.pop(address, None)
        holder, now = self._claims.holder(address), self._pool.endpoint(address)
        if now is not None and (holder is None or holder.endpoint.identity != now.identity):
            self._drop(address)
            now = None
        if holder is None:
            return
        if holder.ready:
            self._admit(holder, known=now is not None)
        elif now is not None and address not in self._parked:
            self._park(address)

    def _admit(self, holder: PodEndpoint, *, known: bool) -> None:
        address = holder.endpoint.address
        self._parked.pop(address, None)
        if not known and len(self._pool) + len(self._parked) >= self._most:
            if not self._parked:
                self._left_out[address] = None
                return
            self._drop(next(iter(self._parked)))  # one that takes no picks makes room
        self._pool.put(holder.endpoint)

    def _park(self, address: str) -> None:
        if not self._keep_s:
            self._drop(address)
            return
        self._pool.park(address)
        self._parked[address] = self._clock() + self._keep_s
        if self._expiry_timer is None:
            self._expiry_timer = asyncio.get_running_loop().call_later(self._keep_s, self.expire)

    def _drop(self, address: str) -> None:
        self._parked.pop(address, None)
        self._pool.remove(address)

    def _fill(self) -> None:
        """Take in what was left out, as far as there is room now."""
        while self._left_out and len(self._pool) + len(self._parked) < self._most:
            self._settle(next(iter(self._left_out)))
        if self._left_out and not self._complained:  # once, and not again with every change
            left_out = counted(len(self._left_out), "endpoint")
            log.error("%s left out: a pool holds at most %d; split the pool", left_out, self._most)
        self._complained = bool(self._left_out)

    def _is_late(self, item: Pod) -> bool:
        """Whether ``item`` is an older pod than the one that has its name now, such as a StatefulSet makes anew."""
        now = self._claims.of(_key(item))
        return bool(now) and now[0].pod != item.metadata.uid and item.metadata.creation_timestamp < now[0].created

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
