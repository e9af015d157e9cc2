"""Which picker leads, by one Lease: a pure machine, which is given the time, what was read, and what was written.

A leader renews its Lease. A standby takes a Lease that is free, of a holder that has ended, or that was not renewed
for its duration, counted on the standby's own clock from when it saw the last change: no clocks are compared. Each
write names the version that it replaces, so that of several writers one wins.

Laws, where pods that the API has no more have ended, and clocks run equally fast:
1. A proof is a renewal that the API server has confirmed, from when it was sent, for the Lease's duration. At each
   moment at most one running picker has a proof, unless the holder's pod was not ready for a whole duration.
2. A leader goes on without a proof until it sees another holder: two leaders are less exact, none is an outage. So
   while the API server can be reached by all, there are two only until the older one's next renewal.
3. A standby serves at once while it sees that the leader does not: the holder's pod is gone, is ending or is not ready
   any more; the Lease is free and stays so; or it may not be read. An API server that cannot be reached shows nothing
   about the leader, and changes nothing.
4. A leader that cannot serve for longer than a renewal may take gives the Lease up, until it can.
5. A standby that is to replace the leader in a rollout serves beside it, and for one Lease's duration after it: a
   rollout waits for ready pods, and would never end otherwise.

Source of the protocol: ``tools/leaderelection`` of k8s.io/client-go 0.35. It differs in law 2, where client-go's leader
ends its process, and in the laws after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from epp.kube.election.holder_pod import HolderPod, Sight
from epp.kube.election.lease import Lease, Record, pod_of, released, renewed, taken, written
from epp.kube.election.steps import FREE_S, TRUSTED_S, Read, Step, Wait, Write
from epp.kube.election.term import Term


class Election:
    """One picker's part in an election. Times are monotonic seconds, except ``wall``. Owner: the event loop."""

    def __init__(
        self, identity: str, term: Term, *, wall: Callable[[], float], random: Callable[[], float], origin: str = ""
    ) -> None:
        """``identity`` is ``<pod>_<unique>``; ``wall`` gives the Unix time, which is written and never compared.

        A Lease whose holder begins with ``origin`` is of an earlier run of this picker; empty if its pod is not known.
        """
        self.identity = identity
        self.leads = False
        """Whether this picker was the holder when it last saw one."""
        self.lease: Lease | None = None
        """The Lease as it was last seen; None while there is none."""
        self.holder = ""
        """The last holder that was seen, which a free Lease does not change."""
        self.changed_at = -math.inf
        """When the Lease was last seen to change."""
        self.following = False
        """Whether a watch of the Lease is open, so that it need not be read again and again; set by the owner."""
        self.denied = False
        """Whether the API server refuses to show the Lease."""
        self.transitions = 0
        """How often another holder was seen than before."""
        self.missed = 0
        """How many renewals of this picker failed."""
        self._term, self._wall, self._random, self._origin = term, wall, random, origin
        self._pod = HolderPod(term.duration_s)
        self._number = -1  # of the newest version that was seen
        self._read_at: float | None = None
        self._must_read = True
        self._noticed_while_reading = False
        self._deaf = False  # the watch has missed a change
        self._absent_at = self._rolled_out_at = -math.inf
        self._lost_at: float | None = None  # since when no request is answered
        self._patient_until = self._patient_since = -math.inf
        self._free_at: float | None = None
        self._sent: tuple[float, Record] | None = None  # the last write
        self._proven_at = -math.inf
        self._pause_until = -math.inf
        self._conflict_at = -math.inf
        self._refusals, self._refused_at = 0, math.inf
        self._ending, self._unable_at = False, math.inf  # since when this picker cannot serve

    def step(self, now: float, *, able: bool) -> Step:
        """Return what is to be done now; ``able`` is whether this picker may take the Lease."""
        self._unable_at = math.inf if able else min(self._unable_at, now)
        if now < self._pause_until:
            return Wait(self._pause_until)
        if self._must_read or self._read_at is None:
            self._noticed_while_reading = False
            return Read()
        if self.leads:
            return self._keep(now)
        if self._ending:
            return Wait(math.inf)
        if self._lost_at is not None:
            return Read()
        if self._is_free(now):
            return self._claim(now) if able else Wait(now + FREE_S / 4)
        overdue_at = self._overdue_at()
        if self._read_at < overdue_at <= now or (not self._hears() and now >= self._read_at + self._term.retry_s):
            self._noticed_while_reading = False
            return Read()
        ahead = (moment for moment in (overdue_at, self._expires_at()) if moment > now)
        return Wait(min(now + self._term.retry_s, *ahead))

    def serves(self, now: float) -> bool:
        """Return whether requests should be sent here: this picker leads, or serves without the Lease."""
        return self.leads or bool(self.why(now))

    def why(self, now: float) -> str:
        """Return why this picker serves without the Lease; empty if it should not."""
        if self.denied:
            return "the Lease may not be read"
        if self._lost_at is not None and self._read_at is None and now >= self._lost_at + self._term.duration_s:
            return "the Lease could never be read"
        if self._free_at is not None and now >= self._free_at + FREE_S:
            return "the Lease is free and could not be taken"
        if self.lease is not None and self.lease.record.holder:
            if self._pod.fails(now):
                return "the leader's pod is gone, ending or not ready"
            if self._is_overdue(now):
                return "the Lease is not renewed"
            if self._pod.is_older:
                return "the leader is being replaced"
        return "a rollout ends" if now < self._rolled_out_at + self._term.duration_s else ""

    def proven(self, now: float) -> bool:
        """Return whether a renewal is proof that no other picker leads (law 1)."""
        return self.leads and not self._ending and now < self._proven_at + self._term.duration_s

    @property
    def pod(self) -> str:
        """The name of the holder's pod; empty if it is not known, or is this picker's own."""
        return "" if self.leads or self.holder == self.identity else pod_of(self.holder)

    # What was seen.

    def saw(self, lease: Lease | None, now: float) -> None:
        """Take the answer to ``Read``, unless the watch has shown something newer meanwhile."""
        self._reached(now)
        self._read_at, self._must_read, self.denied, self._refusals = now, False, False, 0
        self._refused_at = math.inf
        if not self._noticed_while_reading or (lease is not None and self._is_newer(lease)):
            self._deaf = self.following and lease != self.lease
            self._take(lease, now)

    def noticed(self, lease: Lease, now: float) -> None:
        """Take an event of the watch."""
        self._reached(now)
        if self._is_newer(lease):
            self._noticed_while_reading, self._deaf = True, False
            self._take(lease, now)

    def doubted(self, now: float) -> None:
        """Read the Lease next: it was deleted, or a list has shown it, which may be older than a write of ours."""
        self._reached(now)
        self._must_read = True

    def saw_pod(self, sight: Sight, now: float, *, older: bool = False) -> None:
        """Take the state of the pod named ``pod``; ``older`` is whether this picker's pod is to replace it."""
        self._pod.saw(sight, now)
        self._pod.is_older = older

    def wrote(self, lease: Lease, now: float) -> None:
        """Take the Lease that the API server confirms."""
        self._reached(now)
        self._refusals = 0
        if self._is_newer(lease):
            self._take(lease, now)

    def conflicted(self, now: float) -> None:
        """Read next, since another writer was faster; soon after another conflict, after a pause."""
        self._reached(now)
        self._must_read = True
        if now < self._conflict_at + self._term.retry_s:
            self._pause(now, self._term.retry_s)
        self._conflict_at = now

    def refused(self, now: float, *, unreadable: bool) -> None:
        """Note that the API server did not allow a request: reading the Lease if ``unreadable``, else writing it."""
        self._reached(now)
        if unreadable:
            self._refused_at = min(self._refused_at, now)
            # An API server that has just started may refuse what it allows a moment later.
            self.denied = self._read_at is None or now >= self._refused_at + self._term.duration_s
            self._lost_at = None if self.denied else now
        self.missed += self.leads
        self._pause(now, min(self._term.duration_s, self._term.retry_s * 2.0**self._refusals))
        self._refusals = min(self._refusals + 1, 10)

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """Note that a request was not answered, or that the API server has trouble of its own."""
        self._lost_at = now if self._lost_at is None else self._lost_at
        self._free_at = None
        self.missed += self.leads
        self._pause(now, self._term.retry_s)
        if retry_after_s is not None:
            self._pause_until = max(self._pause_until, now + min(retry_after_s, self._term.duration_s))

    def end(self) -> None:
        """Give the Lease up, and take it never again."""
        self._ending = True
        self._pause_until = -math.inf

    def _take(self, lease: Lease | None, now: float) -> None:
        before, self.lease = self.lease, lease
        if lease is None:
            if before is not None:
                self._absent_at = self.changed_at = now
            return
        number = lease.number
        self._number = self._number if number is None else number
        record = lease.record
        if before is None or before.record != record:
            self.changed_at = now
        if record.holder:
            self.leads = record.holder == self.identity
            if record.holder != self.holder:
                self.transitions += bool(self.holder)
                self._rolled_out_at = now if self._pod.is_older else self._rolled_out_at
                self.holder, self._free_at = record.holder, None
                self._pod = HolderPod(self._term.duration_s, now)
        elif self._ending or (self._sent is not None and record == self._sent[1]):  # its own release
            self.leads = False
        if self._sent is not None and record == self._sent[1] and self.leads:
            self._proven_at = self._sent[0]

    def _reached(self, now: float) -> None:
        """Note that the API server answers. After an outage the leader has time to renew before others take over."""
        overdue_s = self._term.overdue_s
        # Requests that fail now and then grant it one wait for each renewal, or a dead leader would stay for ever.
        if self._lost_at is not None and (now - self._lost_at >= overdue_s or self._patient_since != self.changed_at):
            self._patient_until, self._patient_since = now + overdue_s, self.changed_at
        self._lost_at = None

    def _pause(self, now: float, longest_s: float) -> None:
        self._pause_until = now + longest_s * (0.5 + self._random() / 2)

    # When another picker's Lease may be taken.

    def _is_free(self, now: float) -> bool:
        """Whether the Lease may be taken; notes since when."""
        if self.lease is None:
            free = now >= self._absent_at + self._term.retry_s  # a leader whose Lease was deleted makes it again
        else:
            holder = self.lease.record.holder
            free = (
                not holder
                or (bool(self._origin) and holder.startswith(self._origin))
                or self._pod.ended
                or self._pod.fails(now - self._term.duration_s)
                or (self._is_overdue(now) and now >= self._expires_at())
            )
        if not free:
            self._free_at = None
        elif self._free_at is None:
            self._free_at = now
        return free

    def _expires_at(self) -> float:
        stated = self.lease.record.duration_s if self.lease is not None else None
        own_s = self._term.duration_s
        held_s = own_s if stated is None else min(stated, max(own_s, TRUSTED_S))
        return max(self.changed_at + held_s, self._patient_until)

    def _overdue_at(self) -> float:
        return max(min(self.changed_at + self._term.duration_s, self._expires_at()), self._patient_until)

    def _is_overdue(self, now: float) -> bool:
        """Whether no renewal was seen for this picker's own duration, by a read after it."""
        overdue_at = self._overdue_at()
        return self._lost_at is None and self._read_at is not None and overdue_at <= self._read_at <= now

    def _hears(self) -> bool:
        return self.following and not self._deaf

    # What is written.

    def _keep(self, now: float) -> Step:
        """Renew or release the Lease that this picker holds, or make it again."""
        record = self.lease.record if self.lease is not None else Record()
        at = written(self._wall())
        if self._ending or now >= self._unable_at + self._term.overdue_s:
            if record.holder != self.identity:
                self.leads = False
                return Wait(math.inf if self._ending else now)
            self._proven_at = -math.inf  # from now on another picker may take it
            return self._write(released(record, at), now)
        due = self._sent[0] + self._term.retry_s if self._sent is not None else now
        if record.holder == self.identity and now < due:
            return Wait(due)
        return self._write(renewed(record, self.identity, self._term.duration_s, at), now)

    def _claim(self, now: float) -> Step:
        before = self.lease.record if self.lease is not None else None
        return self._write(taken(before, self.identity, self._term.duration_s, written(self._wall())), now)

    def _write(self, record: Record, now: float) -> Write:
        self._sent = now, record
        return Write(record, None if self.lease is None else self.lease.version)

    def _is_newer(self, lease: Lease) -> bool:
        number = lease.number
        return number is None or number > self._number
