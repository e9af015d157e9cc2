"""Endpoints from an InferencePool: the pool is followed as an object, and its pods as it selects them.

What is wrong with the pool never ends the picker: without the pool no endpoint is picked, and the picker is not ready;
a change of the pool that cannot be used leaves the selection before in force. A pool that is made again soon has its
endpoints with all that was known of them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence

from epp.discovery.cluster import PodDiscovery, count_readings, state_readings
from epp.discovery.inference_pool import GroupState, InferencePool, chosen, from_old_pool, from_pool, why_none
from epp.discovery.options import PoolOptions
from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.follow import Follower, Kind
from epp.kube.groups import GROUP, OLD_GROUP, VERSIONS
from epp.kube.pools import OldPoolObject, PoolObject
from epp.metrics.gauges import Reading
from epp.runtime.background import Chore

log = logging.getLogger(__name__)

_KINDS: dict[str, type[PoolObject] | type[OldPoolObject]] = {GROUP: PoolObject, OLD_GROUP: OldPoolObject}
_FORBIDDEN, _NOT_FOUND = 403, 404
_NOT_SERVED = (_FORBIDDEN, _NOT_FOUND)
"""The refusals of a group that the picker may not read, or that the API server does not know."""
_OBJECT = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


class _Group:
    """A pool's name in one group: the listener of a follower of that one object."""

    def __init__(
        self, client: Client, group: str, options: PoolOptions, namespace: str, clock: Callable[[], float],
        decide: Callable[[], None],
    ) -> None:  # fmt: skip
        self.version = f"{group}/{VERSIONS[group]}"
        self.pool: PoolObject | OldPoolObject | None = None
        self._asked = False
        self.needed = asyncio.Event()
        self.needed.set()
        self._decide = decide
        path = f"/apis/{self.version}/namespaces/{namespace}/inferencepools"
        self.follower: Follower[PoolObject | OldPoolObject] = Follower(
            client, Kind(path, _KINDS[group], name=options.name, quiet=True), self,
            random=random.random, clock=clock, needed=self.needed, on_failure=self._failed,
        )  # fmt: skip

    @property
    def state(self) -> GroupState:
        one = self.follower
        return GroupState(self.version, self._asked, self.pool, one.refused, one.trouble)

    def listed(self, objects: list[PoolObject | OldPoolObject]) -> Iterator[None]:
        """Take the only object, or that there is none."""
        self._take(objects[0] if objects else None)
        yield

    def changed(self, item: PoolObject | OldPoolObject) -> None:
        """Take the object as it is now."""
        self._take(item)

    def removed(self, item: PoolObject | OldPoolObject) -> None:  # noqa: ARG002 - there is one
        """Note that there is none any more."""
        self._take(None)

    def _take(self, item: PoolObject | OldPoolObject | None) -> None:
        self.pool, self._asked = item, True
        self._decide()

    def _failed(self) -> None:
        """Note what a refusal means: the kind, and every pool with it, is gone, or the picker may not read it.

        A pool that was read before its right was taken away stays in use.
        """
        refused = self.follower.refused
        if refused in _NOT_SERVED:
            self._asked = True
        if refused == _NOT_FOUND:
            self.pool = None
        self._decide()


class PoolDiscovery:
    """Keeps a pool of endpoints equal to an InferencePool. Owner: the event loop."""

    def __init__(
        self,
        client: Client,
        pods: PodDiscovery,
        options: PoolOptions,
        *,
        namespace: str,
        picker: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``pods`` follows what the pool selects; ``picker`` is what made this picker's pod, if that is known."""
        self.current: InferencePool | None = None
        """The pool as it is used; None while there is none."""
        self._options = options
        self._name = f"InferencePool {namespace}/{options.name}"
        self._picker, self._clock = picker, clock
        self._pods = pods
        self._groups = [_Group(client, group, options, namespace, clock, self._decide) for group in options.groups]
        self._used: _Group | None = None
        self._unusable: str | None = None
        self._logged = ""
        self._warned: set[str] = set()
        self._chores: list[Chore] = []

    @property
    def loaded(self) -> bool:
        """Whether the pool and its pods were read; without the pool, no request should be served."""
        return self.current is not None and self._pods.loaded

    @property
    def trouble(self) -> str | None:
        """Why there are no endpoints, or why they may be out of date; None while all is current."""
        if self._used is None:
            return why_none(self._states(), self._name)
        return self._unusable or self._used.follower.trouble or self._pods.trouble

    async def start(self) -> None:
        """Begin to follow. Returns before the pool was read: a picker without an API server stays up.

        Raises: ConfigError for a name that no object can have.
        """
        if not _OBJECT.fullmatch(self._options.name):
            raise ConfigError(
                f"--pool-name={self._options.name} is not the name of an object: at most 253 of a-z, 0-9, '-' and '.'"
            )
        await self._pods.start()
        self._chores = [Chore(f"pool of {group.version}", group.follower.run) for group in self._groups]

    async def stop(self) -> None:
        """Stop following; the endpoints stay as they are."""
        for chore in self._chores:
            await chore.stop()
        await self._pods.stop()

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        counts = self._pods.counts
        failures = counts.failures + sum(group.follower.failures for group in self._groups)
        yield from count_readings(counts._replace(failures=failures))
        yield from state_readings(self.loaded, self.trouble, self._heard_at(), self._clock())
        yield from self._pods.keeper.readings()

    def _heard_at(self) -> float | None:
        """When the API server last sent something of the pool and of its pods, whichever is longer ago."""
        heard = [self._pods.heard_at, self._used.follower.heard_at if self._used is not None else None]
        return min((at for at in heard if at is not None), default=None)

    def _states(self) -> Sequence[GroupState]:
        return [group.state for group in self._groups]

    def _decide(self) -> None:
        """Use the pool that counts now, and nothing where there is none."""
        states = self._states()
        state = chosen(states)
        self._used = None if state is None else self._groups[states.index(state)]
        matters = True  # a group that was refused is asked again, except for those after the one that has the pool
        for group in self._groups:
            (group.needed.set if matters else group.needed.clear)()
            matters = matters and group is not self._used
        if state is None or state.pool is None:
            if self.current is not None or all(each.asked for each in states):
                self._lose(why_none(states, self._name))
            return
        try:
            new = from_pool(state.pool) if isinstance(state.pool, PoolObject) else from_old_pool(state.pool)
        except ConfigError as error:
            self._refuse(str(error))
            return
        self._unusable = None
        if new != self.current:
            log.info("%s of %s: pods %s, ports %s", self._name, state.group, new.pods.selector, new.pods.ports)
            self._logged = ""
            self.current = new
            self._pods.select(new.pods)
        self._warn(states, new)

    def _lose(self, why: str) -> None:
        self.current = self._unusable = None
        self._pods.select(None)
        self._log(f"{why}; there are no endpoints")

    def _refuse(self, why: str) -> None:
        kept = "what it selected before stays in use" if self.current is not None else "there are no endpoints"
        self._unusable = f"{self._name}: {why}; {kept}"
        self._log(self._unusable)

    def _log(self, warning: str) -> None:
        if warning != self._logged:
            self._logged = warning
            log.warning("%s", warning)

    def _warn(self, states: Sequence[GroupState], pool: InferencePool) -> None:
        """Log what is probably not intended, once each."""
        here = [state.group for state in states if state.pool is not None]
        if len(here) > 1:
            self._warn_once(f"{self._name} is in {' and '.join(here)}: that of {here[0]} is used; delete one of them")
        if pool.picker is not None and self._picker is not None and pool.picker != self._picker:
            self._warn_once(
                f"{self._name} has gateways ask the Service {pool.picker}, and this picker belongs to {self._picker}; "
                "check that the Service selects its pods"
            )

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            log.warning("%s", warning)
