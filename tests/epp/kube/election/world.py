"""A simulated cluster for election machines: one Lease, messages that take time or are lost, and kubelets that report.

Time is the world's; each picker's own clock has another origin, and its wall clock is wrong by up to hours.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random

from epp.kube.election.holder_pod import Sight
from epp.kube.election.lease import Lease, Record
from epp.kube.election.machine import Election
from epp.kube.election.steps import Read, Step, Wait, Write
from epp.kube.election.term import Term

REQUEST_S = 5.0
"""How long a picker waits for an answer."""


class Server:
    """The API server: one Lease, and a version that only goes up."""

    def __init__(self) -> None:
        self.version = 0
        self.lease: Lease | None = None
        self.up = True

    def write(self, record: Record, version: str | None) -> Lease | None:
        """Return the Lease after the write; None if it names another version than the Lease has."""
        if version != (None if self.lease is None else self.lease.version):
            return None
        return self.put(record)

    def put(self, record: Record) -> Lease:
        """Write without a check, as by hand."""
        self.version += 1
        self.lease = Lease(str(self.version), record)
        return self.lease

    def delete(self) -> None:
        """Delete the Lease, as by hand."""
        self.version += 1
        self.lease = None


class Picker:
    """One process with its machine, and what lies between it and the API server."""

    def __init__(self, world: World, name: str, term: Term) -> None:
        self.world, self.name = world, name
        self.runs = self.reachable = self.able = True
        self.watches = True
        """Whether the API server sends it the Lease's changes."""
        self._offset = world.random.uniform(0, 1e6)
        self._busy = False
        self._wakes = itertools.count()
        self._wake = 0
        self.machine = Election(
            f"{name}_{world.random.getrandbits(32):08x}",
            term,
            wall=lambda: 1.8e9 + world.now + world.random.uniform(-3600, 3600),
            random=world.random.random,
            origin=f"{name}_",
        )
        self.machine.following = True

    @property
    def now(self) -> float:
        """The picker's own clock."""
        return self.world.now + self._offset

    @property
    def serves(self) -> bool:
        """Whether it is ready: it can serve, and the election lets it."""
        return self.runs and self.able and self.machine.serves(self.now)

    def advance(self) -> None:
        """Do what the machine asks for, unless a request is under way."""
        if not self.runs or self._busy:
            return
        step = self.machine.step(self.now, able=self.able)
        if isinstance(step, Wait):
            self._wake = next(self._wakes)
            seconds = min(max(step.until - self.now, 1e-6), 1e6)
            self.world.after(seconds, lambda mine=self._wake: self.advance() if mine == self._wake else None)
            return
        self._busy = True
        self.world.after(self.world.delay(), lambda: self._arrive(step))

    def _arrive(self, step: Step) -> None:
        if not self.world.server.up or not self.reachable or self.world.loses():
            self.world.after(REQUEST_S if self.world.random.random() < 0.5 else 0.01, self._fail)
            return
        answer = self._answer(step)
        self.world.tell_watchers()
        if self.world.loses():
            self.world.after(REQUEST_S, self._fail)
        else:
            self.world.after(self.world.delay(), lambda: self._end(answer))

    def _answer(self, step: Step) -> Callable[[], None]:
        server, machine = self.world.server, self.machine
        if isinstance(step, Read):
            lease = server.lease
            return lambda: machine.saw(lease, self.now)
        assert isinstance(step, Write)
        if step.version is not None and server.lease is None:
            return lambda: machine.saw(None, self.now)
        written = server.write(step.record, step.version)
        return lambda: machine.conflicted(self.now) if written is None else machine.wrote(written, self.now)

    def _fail(self) -> None:
        self._end(lambda: self.machine.failed(self.now))

    def _end(self, note: Callable[[], None]) -> None:
        if not self.runs:
            return
        self._busy = False
        note()
        self.world.look(self)
        self.advance()

    def watch_again(self) -> None:
        """Open the watch after a list."""
        self.machine.following = True
        self.hear(None)

    def hear(self, lease: Lease | None) -> None:
        """Take an event of the watch."""
        if self.runs and self.watches and self.reachable and self.world.server.up:
            if lease is None:
                self.machine.doubted(self.now)
            else:
                self.machine.noticed(lease, self.now)
            self.world.look(self)
            self.advance()


class World:
    """All pickers and what happens to them, in the order of time. ``check`` runs after every event."""

    def __init__(self, random: Random, pickers: int, *, slowest_s: float = 0.2, loss: float = 0.0) -> None:
        self.random, self.now = random, 0.0
        self.server = Server()
        self.reported: dict[str, Sight] = {}
        self.outdated: set[str] = set()
        """The pods of an older template than the others."""
        self.slowest_s, self.loss = slowest_s, loss
        self.check: Callable[[], None] = lambda: None
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._names = itertools.count()
        self._announced = self.server.lease
        self.pickers: list[Picker] = []
        for _ in range(pickers):
            self.start()

    def start(self, term: Term | None = None, *, name: str | None = None) -> Picker:
        """Start a picker in a pod of its own, or again in the pod ``name``."""
        picker = Picker(self, name or f"epp-{next(self._names)}", term or Term())
        self.pickers.append(picker)
        self.report(picker.name, Sight.READY)
        picker.advance()
        return picker

    def kill(self, picker: Picker) -> None:
        """End a picker without notice. Its kubelet reports nothing by itself."""
        picker.runs = False

    def report(self, name: str, sight: Sight) -> None:
        """Let the API have a new state of a pod, which the pickers see soon."""
        self.reported[name] = sight
        for picker in self.pickers:
            self.after(self.delay(), lambda picker=picker: self.look(picker) or picker.advance())

    def look(self, picker: Picker) -> None:
        """Show a picker the state of the pod that it watches."""
        if picker.runs and picker.reachable and self.server.up and (pod := picker.machine.pod) in self.reported:
            older = pod in self.outdated and picker.name not in self.outdated
            picker.machine.saw_pod(self.reported[pod], picker.now, older=older)

    def turn(self, *, up: bool) -> None:
        """Start or end the API server. Watches break at once, and open again a while after it is there."""
        self.server.up = up
        for picker in self.pickers:
            if up:
                self.after(10 * self.delay(), lambda picker=picker: picker.watch_again())
            else:
                picker.machine.following = False
                self.after(self.delay(), lambda picker=picker: picker.advance())

    def tell_watchers(self) -> None:
        """Send the Lease's last change to every watch."""
        lease = self.server.lease
        if lease == self._announced:
            return
        self._announced = lease
        for picker in self.pickers:
            if not self.loses():
                self.after(self.delay(), lambda picker=picker: picker.hear(lease))

    def delay(self) -> float:
        return self.random.uniform(0.001, self.slowest_s)

    def loses(self) -> bool:
        return self.random.random() < self.loss

    def after(self, seconds: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self, seconds: float) -> None:
        """Let this much time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self.check()
        self.now = end

    def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Let time pass until the condition holds, and return how long that took. Raises: AssertionError."""
        began = self.now
        while not condition():
            assert self.now < began + within_s, f"not within {within_s:g} s"
            self.run(0.01)
        return self.now - began

    def running(self) -> list[Picker]:
        return [picker for picker in self.pickers if picker.runs]

    def leaders(self) -> list[Picker]:
        return [picker for picker in self.running() if picker.machine.leads]

    def serving(self) -> list[Picker]:
        return [picker for picker in self.running() if picker.serves]

    def proven(self) -> list[Picker]:
        return [picker for picker in self.running() if picker.machine.proven(picker.now)]

    def settled(self) -> bool:
        """Whether exactly one picker leads, and it alone serves."""
        return len(self.leaders()) == 1 and self.serving() == self.leaders()
