"""Endpoints from the pods of a Kubernetes namespace, followed by a watch.

During an outage of the API server the last endpoints stay in use; scrapes show which of them are gone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from epp.discovery.options import PodOptions
from epp.discovery.pool_keeper import PoolKeeper
from epp.kube.client import Client
from epp.kube.follow import PAGE, Follower, Kind
from epp.kube.objects import Pod
from epp.metrics.gauges import Reading
from epp.runtime.background import Chore
from epp.runtime.slices import sliced


class Counts(NamedTuple):
    """What a discovery read."""

    lists: int = 0
    events: int = 0
    failures: int = 0
    """Requests that failed."""


class PodDiscovery:
    """Keeps a pool equal to the ready pods that are selected, which may change. Owner: the event loop."""

    def __init__(
        self,
        client: Client,
        keeper: PoolKeeper,
        *,
        namespace: str,
        selected: PodOptions | None,
        page: int = PAGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With ``selected`` None the pool is empty until ``select`` is called."""
        self.keeper = keeper
        self._client, self._page, self._clock = client, page, clock
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._selected, self._changed = selected, asyncio.Event()
        self._follower: Follower[Pod] | None = None
        self._loaded = False  # by an earlier follower
        self._before = Counts()  # of earlier followers
        self._chore: Chore | None = None

    @property
    def loaded(self) -> bool:
        """Whether a whole list of pods was read since pods are selected; before that, no request should be served."""
        read = self._follower is not None and self._follower.synced
        return self._selected is not None and (self._loaded or read)

    @property
    def trouble(self) -> str | None:
        """The error of the last request to the API server; None while it answers."""
        return self._follower.trouble if self._follower is not None else None

    @property
    def heard_at(self) -> float | None:
        """When the API server last sent something, by the clock; None if it never did."""
        return self._follower.heard_at if self._follower is not None else None

    @property
    def counts(self) -> Counts:
        """What was read since the start."""
        one, before = self._follower, self._before
        if one is None:
            return before
        return Counts(before.lists + one.lists, before.events + one.events, before.failures + one.failures)

    def select(self, pods: PodOptions | None) -> None:
        """Follow other pods from now on; the endpoints change once they are listed. None: nothing is picked."""
        if pods != self._selected:
            self._loaded = self.loaded and pods is not None
            self._selected = pods
            self._changed.set()

    async def start(self) -> None:
        """Begin to follow. Returns before the first list is there: a picker without an API server stays up."""
        self._chore = Chore("pod-discovery", self._run)

    async def stop(self) -> None:
        """Stop following; the pool stays as it is."""
        if self._chore is not None:
            await self._chore.stop()
        self.keeper.stop()

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        yield from count_readings(self.counts)
        yield from state_readings(self.loaded, self.trouble, self.heard_at, self._clock())
        yield from self.keeper.readings()

    async def _run(self) -> None:
        """Follow what is selected, with a follower of its own for each selection."""
        while True:
            self._changed.clear()
            self._retire()
            if self._selected is None:
                await sliced(self.keeper.let_go())
                await self._changed.wait()
                continue
            self.keeper.ports = self._selected.ports
            kind = Kind(self._path, Pod, self._selected.selector)
            self._follower = Follower(
                self._client, kind, self.keeper, random=random.random, clock=self._clock, page=self._page
            )
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follower.run())
                await self._changed.wait()
                following.cancel()

    def _retire(self) -> None:
        """Keep the counts of the follower before."""
        self._loaded, self._before, self._follower = self.loaded, self.counts, None


def count_readings(counts: Counts) -> Iterator[Reading]:
    """Yield the counters of followed pods."""
    for name, text, count in (
        ("tierwise_discovery_pod_lists", "Whole lists of pods that were read.", counts.lists),
        ("tierwise_discovery_pod_events", "Events of pods that were applied.", counts.events),
        ("tierwise_discovery_errors", "Requests to the API server that failed.", counts.failures),
    ):
        yield Reading(name, text, (), [((), count)], counter=True)


def state_readings(loaded: bool, trouble: str | None, heard_at: float | None, now: float) -> Iterator[Reading]:
    """Yield whether the endpoints are known, whether they are current, and how long the API server was silent."""
    for name, text, value in (
        ("tierwise_discovery_loaded", "1 from the first list of endpoints on.", float(loaded)),
        ("tierwise_discovery_current", "1 while the API server is followed.", float(loaded and trouble is None)),
        (
            "tierwise_discovery_age_seconds",
            "Time since the API server last sent something.",
            0.0 if heard_at is None else now - heard_at,
        ),
    ):
        yield Reading(name, text, (), [((), value)])
