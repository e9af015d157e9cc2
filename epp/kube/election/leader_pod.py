"""Watches the leader's pod, and compares its template with that of this picker's own pod."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress

from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.election.holder_pod import Revision, Sight, is_older, revision_of, sight_of
from epp.kube.election.lease import namespace_of, pod_of
from epp.kube.errors import KubeError
from epp.kube.follow import Follower, Kind
from epp.kube.objects import Decoder, ListOf, Pod
from epp.runtime.background import Chore

REQUEST_S = 5.0
"""The longest that reading this picker's own pod may take. A guess."""
_PODS = Decoder(ListOf[Pod])
_NO_REVISION = Revision("", "")


class LeaderPod:
    """The pod of one holder at a time. Owner: the event loop."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        own_pod: str,
        saw: Callable[[str, Sight, bool], None],
        clock: Callable[[], float],
        again_s: float,
    ) -> None:
        """``saw`` is called with the holder, its pod's state, and whether this picker's pod is to replace it.

        ``own_pod`` is empty if it is not known; it is read once, and again after ``again_s`` where that failed.
        """
        self._client, self._saw, self._clock, self._again_s = client, saw, clock, again_s
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._holder = ""
        self._pod: Pod | None = None
        self._chores: list[Chore] = []
        self._own_pod, self._own = own_pod, None if own_pod else _NO_REVISION

    async def follow(self, holder: str) -> None:
        """Watch the pod of ``holder`` instead of the one before; none if it is empty. Waits for no answer."""
        if namespace_of(holder) not in ("", self._namespace):  # a pod of this name here is not the leader's
            holder = ""
        if holder == self._holder:
            return
        self._holder, self._pod = holder, None
        for chore in self._chores:
            await chore.stop()
        self._chores = []
        if holder:
            kind = Kind(self._path, Pod, name=pod_of(holder))
            follower = Follower(self._client, kind, self, random=random.random, clock=self._clock)
            self._chores = [Chore("leader-pod", follower.run), Chore("own-pod", self._read_own)]

    def listed(self, objects: list[Pod]) -> Iterator[None]:
        """Take a list, which has the pod or nothing."""
        self._take(objects[0] if objects else None)
        yield

    def changed(self, item: Pod) -> None:
        """Take the pod's new state."""
        self._take(item)

    def removed(self, item: Pod) -> None:  # noqa: ARG002 (the watch is of one pod)
        """Note that the pod is gone."""
        self._take(None)

    def _take(self, pod: Pod | None) -> None:
        self._pod = pod
        if pod is None:
            self._saw(self._holder, Sight.GONE, False)
        else:
            self._saw(self._holder, sight_of(pod), is_older(revision_of(pod), self._own))

    async def _read_own(self) -> None:
        query = {"fieldSelector": f"metadata.name={self._own_pod}"}
        while self._own is None:
            with suppress(KubeError, ConfigError, TimeoutError):  # the part that checks rights shows what is missing
                async with asyncio.timeout(REQUEST_S):
                    found = (await self._client.get(self._path, _PODS, query)).items
                self._own = (revision_of(found[0]) if found else None) or _NO_REVISION
                if self._pod is not None:
                    self._take(self._pod)
                return
            await asyncio.sleep(self._again_s)
