"""Takes part in an election: reads and writes the Lease for the machine, and watches it and the holder's pod."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.election.holder_pod import Sight
from epp.kube.election.leader_pod import LeaderPod
from epp.kube.election.lease import LeaseObject, lease_of, leases_path, origin, spec_of
from epp.kube.election.machine import Election
from epp.kube.election.steps import Read, Wait, Write
from epp.kube.election.term import Term
from epp.kube.errors import KubeError, Refused
from epp.kube.follow import Follower, Kind
from epp.kube.objects import Decoder
from epp.metrics.gauges import Reading
from epp.runtime.background import Chore

log = logging.getLogger(__name__)

REQUEST_S = 5.0
"""The longest that one request for the Lease may take. Source: client-go's renewals, of which two fit into 10 s."""
RELEASE_S = 1.5
"""The longest that the end of a picker waits for its Lease to be released; standbys have the rest of 2 s."""
_LEASE = Decoder(LeaseObject)
_NOT_ALLOWED = (400, 403, 404, 405, 422)
"""Refusals that a repetition does not change: a right, a namespace or a policy of the cluster."""


class Elector:
    """One picker's part in the election of its pool. Owner: the event loop; ``start`` and ``stop`` are called once."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        term: Term,
        able: Callable[[], bool],
        pod: str = "",
        pod_namespace: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``able`` is whether this picker could serve; ``pod`` is its own pod's name, empty if it is not known.

        Pickers' pods are in ``pod_namespace``, or else in that of the Lease.
        """
        self.name = name
        self._client, self._namespace, self._able, self._clock = client, namespace, able, clock
        self._path = leases_path(namespace)
        pods = pod_namespace or namespace
        identity = f"{origin(pod or socket.gethostname(), pods)}{uuid.uuid4()}"
        earlier = origin(pod, pods) if pod else ""
        self._machine = Election(identity, term, wall=wall, random=random.random, origin=earlier)
        self._term = term
        self._follower = Follower(
            client, Kind(self._path, LeaseObject, name=name), self, random=random.random, clock=clock
        )
        self._woken, self._released = asyncio.Event(), asyncio.Event()
        self._ending = False
        self._chores: list[Chore] = []
        self._leader_pod = LeaderPod(client, pods, pod, self._saw_pod, clock, term.duration_s)
        self._error: KubeError | ConfigError | None = None
        self._role = ""  # as it was logged

    @property
    def leads(self) -> bool:
        """Whether this picker leads, as far as it has seen."""
        return self._machine.leads

    @property
    def serves(self) -> bool:
        """Whether requests should be sent here: it leads, or sees that the leader does not serve."""
        return self._machine.serves(self._clock())

    @property
    def role(self) -> str:
        """What this picker is in the election, in one sentence."""
        machine, now = self._machine, self._clock()
        if machine.leads:
            return f"this picker leads by the Lease {self.name}"
        holder = f"{machine.holder[:200]!r}" if machine.holder else "no picker"
        if why := machine.why(now):
            return f"this picker serves although {holder} has the Lease {self.name}: {why}"
        return f"standing by: {holder} leads by the Lease {self.name}"

    @property
    def trouble(self) -> str | None:
        """Why the Lease is not read or written; None while it is, and for as long as a renewal may take."""
        if self._error is None or (self.leads and self._age_s() < self._term.overdue_s):
            return None
        return f"the Lease {self.name} cannot be {'renewed' if self.leads else 'used'}: {self._error}"

    async def start(self) -> None:
        """Begin to take part. Returns at once."""
        self._chores = [Chore("lease", self._follower.run), Chore("election", self._run)]

    async def stop(self) -> None:
        """Release the Lease if it is this picker's, for ``RELEASE_S`` at most, and end."""
        self.end()
        if self._chores:
            with suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await self._released.wait()
        for chore in self._chores:
            await chore.stop()
        await self._leader_pod.follow("")

    def end(self) -> None:
        """Begin to release the Lease, and take it never again."""
        self._ending = True
        self._machine.end()
        self._woken.set()

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        machine = self._machine
        leading = [((self.name,), float(machine.leads))]
        yield Reading("leader_election_master_status", "1 while this picker leads.", ("name",), leading)
        for name, text, count in (
            ("tierwise_election_holder_changes", "Other holders of the Lease that were seen.", machine.transitions),
            ("tierwise_election_renewal_failures", "Requests of a leader for its Lease that failed.", machine.missed),
        ):
            yield Reading(name, text, (), [((), count)], counter=True)
        for name, text, value in (
            ("tierwise_election_leading", "1 while this picker leads.", float(machine.leads)),
            ("tierwise_election_serving", "1 while requests should be sent to this picker.", float(self.serves)),
            ("tierwise_election_lease_age_seconds", "Time since the Lease was last seen to change.", self._age_s()),
        ):
            yield Reading(name, text, (), [((), value)])

    # What the watch of the Lease shows.

    def listed(self, objects: list[LeaseObject]) -> Iterator[None]:
        """Compare a list with what was read last."""
        known = self._machine.lease
        if [item.metadata.resource_version for item in objects] != ([known.version] if known is not None else []):
            self._machine.doubted(self._clock())
        self._woken.set()
        yield

    def changed(self, item: LeaseObject) -> None:
        """Take a change of the Lease."""
        self._machine.noticed(lease_of(item), self._clock())
        self._woken.set()

    def removed(self, item: LeaseObject) -> None:  # noqa: ARG002 (a read shows what is there)
        """Take the Lease's deletion."""
        self._machine.doubted(self._clock())
        self._woken.set()

    def _saw_pod(self, holder: str, sight: Sight, older: bool) -> None:
        if self._machine.holder == holder:
            self._machine.saw_pod(sight, self._clock(), older=older)
            self._woken.set()

    # The election.

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            machine, now = self._machine, self._clock()
            machine.following = self._follower.synced and self._follower.trouble is None
            step = machine.step(now, able=self._able())
            if self._ending and not machine.leads:
                self._released.set()
            if isinstance(step, Wait):
                await self._leader_pod.follow(machine.holder if machine.pod else "")
                self._log_role()
                await self._sleep(step.until - self._clock())
            else:
                await self._do(step)
                self._log_role()

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(seconds, 0.0), self._term.duration_s)):
                await self._woken.wait()

    async def _do(self, step: Read | Write) -> None:
        """Send one request and give the machine what came of it."""
        machine = self._machine
        try:
            async with asyncio.timeout(min(REQUEST_S, self._term.overdue_s / 2)):
                if isinstance(step, Read):
                    item = await self._client.get(f"{self._path}/{self.name}", _LEASE)
                    machine.saw(lease_of(item), self._clock())
                else:
                    machine.wrote(lease_of(await self._write(step)), self._clock())
        except Refused as error:
            self._refused(step, error)
        except TimeoutError:
            self._failed(KubeError(f"{self._path}/{self.name}: no answer for {REQUEST_S:g} s"))
        except (KubeError, ConfigError) as error:
            self._failed(error)
        else:
            self._answered()

    async def _write(self, step: Write) -> LeaseObject:
        spec = spec_of(step.record)
        if step.version is None:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name},
                    "spec": spec}  # fmt: skip
            return await self._client.send("POST", self._path, body, _LEASE)
        # A patch leaves what others have written into the object; with a version it fails if the object has another.
        patch = {"metadata": {"resourceVersion": step.version}, "spec": spec}
        return await self._client.send("PATCH", f"{self._path}/{self.name}", patch, _LEASE)

    def _refused(self, step: Read | Write, error: Refused) -> None:
        machine, now = self._machine, self._clock()
        missing = error.status == 404 and not (isinstance(step, Write) and step.version is None)
        if missing:
            machine.saw(None, now)
            self._answered()
        elif error.status == 409:
            machine.conflicted(now)
            self._answered()
        elif error.status in _NOT_ALLOWED:
            self._note(error)
            machine.refused(now, unreadable=isinstance(step, Read))
        else:
            self._failed(error)

    def _failed(self, error: KubeError | ConfigError) -> None:
        self._note(error)
        self._machine.failed(self._clock(), error.retry_after_s if isinstance(error, KubeError) else None)

    def _note(self, error: KubeError | ConfigError) -> None:
        if self._error is None:  # one warning for each outage
            goes_on = "this picker goes on leading" if self.leads else "the picker goes on as it is"
            log.warning("%s; %s, and the API server is asked again", error, goes_on)
        self._error = error

    def _answered(self) -> None:
        if self._error is not None:
            log.info("the Lease %s is used again", self.name)
        self._error = None

    def _log_role(self) -> None:
        if (role := self.role) != self._role:
            self._role = role
            log.info("%s", role)

    def _age_s(self) -> float:
        return max(0.0, min(self._clock() - self._machine.changed_at, 1e9))
