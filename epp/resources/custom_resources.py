"""Objectives and rewrites of a pool, followed in both groups, applied, and answered with the condition ``Accepted``.

They belong to a pool's name and not to the pool: deleting and making the pool again changes nothing of them. Events
are gathered for a moment and read in slices; what they change is applied in one step, so that no request sees half.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from epp.kube.client import Client
from epp.kube.objects_inference import GROUPS, OBJECTIVE, PLURALS, REWRITE, VERSION, InferenceObject
from epp.kube.served import KindName, ServedKind
from epp.metrics.gauges import Reading
from epp.picking.model_rewrites import Rule
from epp.resources.kept import Applied, Judged, KeptKind, ObjectName
from epp.resources.status_writer import StatusWriter
from epp.resources.verdict import Verdict, of_objective, of_rewrite
from epp.resources.written import PoolName, priority_of, rules_of
from epp.runtime.background import Chore
from epp.runtime.slices import sliced

log = logging.getLogger(__name__)

K = TypeVar("K")

GATHER_S = 0.02
"""How long events are gathered before they are applied. A guess: an ``apply`` of a folder is a burst of events."""
MOST_LINES = 10
"""The most lines of the log about objects that are not used, each time that some change."""
_USED_FOR = {OBJECTIVE: "priorities", REWRITE: "rules of rewrites"}


class Uses(Protocol):
    """The interface of what requests are decided with. Its methods are called on the event loop."""

    @property
    def configured_objectives(self) -> Collection[str]:
        """The names of the configuration's objectives."""

    @property
    def configured_models(self) -> Collection[str | None]:
        """The models for which the configuration has a rewrite; None is every model."""

    def change_objectives(self, priorities: Mapping[str, int | None]) -> None:
        """Give objectives these priorities from the next request on, beside those of the configuration; None removes
        one."""

    def stage_rewrites(self, rules: Mapping[str | None, Rule | None]) -> Iterator[None]:
        """Prepare, in small steps, that these rules are followed beside the configuration's; None removes one."""

    def change_rewrites(self) -> Iterator[None]:
        """Follow what was staged from the next request on. Returns the work that is left, in small steps."""


class _Kind(Generic[K]):
    """One kind: its objects, and the two groups that it is followed in."""

    def __init__(self, kept: KeptKind[K, Any], served: tuple[ServedKind[InferenceObject], ...]) -> None:
        self.kept, self.served = kept, served

    @property
    def missing(self) -> bool:
        """Whether no group serves the kind, as far as is known."""
        return all(each.missing for each in self.served)

    @property
    def trouble(self) -> str | None:
        if self.missing:
            groups = " nor ".join(f"{each.name.group}/{each.name.version}" for each in self.served)
            used = _USED_FOR[self.kept.kind]
            return f"neither {groups} has {self.kept.kind}, so {used} come from the configuration alone"
        for each in self.served:
            if each.trouble is not None:
                return f"{self.kept.kind} may be out of date: {each.trouble}"
        return None


class _Listener:
    """Passes the events of one kind of one group on, in the order in which they come."""

    def __init__(self, take: Callable[[Iterator[None]], None], kept: KeptKind[Any, Any], group: int) -> None:
        self._take, self._kept, self._group = take, kept, group

    def listed(self, objects: list[InferenceObject]) -> Iterator[None]:
        self._take(self._replace(objects))
        return iter(())

    def changed(self, item: InferenceObject) -> None:
        self._take(self._put(item))

    def removed(self, item: InferenceObject) -> None:
        self._take(self._remove(item))

    def _replace(self, objects: list[InferenceObject]) -> Iterator[None]:
        for name in self._kept.names(self._group) - {item.metadata.name for item in objects}:
            self._kept.remove(self._group, name)
            yield
        for item in objects:
            self._kept.put(self._group, item)
            yield

    def _put(self, item: InferenceObject) -> Iterator[None]:
        self._kept.put(self._group, item)
        yield

    def _remove(self, item: InferenceObject) -> Iterator[None]:
        self._kept.remove(self._group, item.metadata.name)
        yield


class CustomResources:
    """A part of the picker that follows the objects of one pool. Owner: the event loop."""

    def __init__(
        self,
        client: Client,
        uses: Uses,
        *,
        namespace: str,
        pool: PoolName,
        random: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        gather_s: float = GATHER_S,
        writer: StatusWriter | None = None,
    ) -> None:
        """``random`` gives numbers in [0, 1), ``clock`` monotonic seconds."""
        self._uses, self._namespace, self._gather_s = uses, namespace, gather_s
        self._writer = writer or StatusWriter(client, clock=clock)
        self._work: deque[Iterator[None]] = deque()
        self._any = asyncio.Event()
        self._chores: list[Chore] = []
        self._warned_missing: set[str] = set()
        self._refused: dict[tuple[str, str, int], Verdict] = {}  # by kind, name and group: what the log has
        self._objectives = KeptKind[str, int](
            OBJECTIVE,
            lambda name, spec: {name: priority_of(spec)},
            lambda owner, _, lost: of_objective(owner, lost),
            pool,
        )
        self._rewrites = KeptKind[str | None, Rule](REWRITE, rules_of, of_rewrite, pool)
        self._kinds: list[_Kind[Any]] = []
        for kept in (self._objectives, self._rewrites):
            followed = partial(
                ServedKind[InferenceObject],
                client, type=InferenceObject, namespace=namespace, random=random, clock=clock,
                plural=PLURALS[kept.kind],
            )  # fmt: skip
            listen = partial(_Listener, self._take, kept)
            self._kinds.append(
                _Kind(
                    kept,
                    tuple(
                        followed(name=KindName(group, VERSION, kept.kind), listener=listen(i))
                        for i, group in enumerate(GROUPS)
                    ),
                )
            )

    @property
    def trouble(self) -> str | None:
        """What is missing or may be out of date, in one sentence; None while all objects are current."""
        return "; ".join(kind.trouble for kind in self._kinds if kind.trouble is not None) or None

    async def start(self) -> None:
        """Begin to follow. Returns before the first lists are there."""
        self.configure()
        for kind in self._kinds:
            for served in kind.served:
                self._chores.append(Chore(f"follow {served.name}", served.run))
        self._chores.append(Chore("apply custom resources", self._apply_all))
        self._chores.append(Chore("write conditions", self._writer.run))

    async def stop(self) -> None:
        """Stop following; what was read stays in use."""
        for chore in reversed(self._chores):
            await chore.stop()

    def configure(self) -> None:
        """Learn what the configuration has, at the start and after it has changed."""
        self._objectives.configure(self._uses.configured_objectives)
        self._rewrites.configure(self._uses.configured_models)
        self._any.set()

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        yield Reading(
            "tierwise_custom_resources",
            "Objectives and rewrites at the API server, by what became of them.",
            ("kind", "group", "state"),
            [((kind.kept.kind, *key), count) for kind in self._kinds for key, count in kind.kept.states().items()],
        )
        yield Reading(
            "tierwise_custom_resources_current",
            "1 while all objects of a kind are known as they are; 0 where it is missing or may not be read.",
            ("kind", "group"),
            [
                ((served.name.kind, served.name.group), float(served.current))
                for kind in self._kinds
                for served in kind.served
            ],
        )
        yield from self._writer.readings()

    def _take(self, steps: Iterator[None]) -> None:
        self._work.append(steps)
        self._any.set()

    async def _apply_all(self) -> None:
        while True:
            await self._any.wait()
            await asyncio.sleep(self._gather_s)
            self._any.clear()
            await sliced(self._read())
            await self._settle()
            self._warn_of_missing()

    def _read(self) -> Iterator[None]:
        """Read all events, as one piece of work: a burst of small ones is sliced as a list is."""
        while self._work:
            yield from self._work.popleft()

    async def _settle(self) -> None:
        """Use everything that was read, in one step; then judge the objects in slices, which no request waits for."""
        await sliced(self._objectives.prepare())
        await sliced(self._rewrites.prepare())
        objectives, rewrites = self._objectives.apply(), self._rewrites.apply()
        if rewrites.values:
            await sliced(self._uses.stage_rewrites(rewrites.values))
        if objectives.values:
            self._uses.change_objectives(objectives.values)
        if rewrites.values:
            await sliced(self._uses.change_rewrites())
        lines: list[str] = []
        await sliced(self._judge(OBJECTIVE, objectives, lines))
        await sliced(self._judge(REWRITE, rewrites, lines))
        for line in lines[:MOST_LINES]:
            log.warning("%s", line)
        if len(lines) > MOST_LINES:
            log.warning("and %d more objects are not used as they are written", len(lines) - MOST_LINES)

    def _judge(self, kind: str, applied: Applied[Any, Any], lines: list[str]) -> Iterator[None]:
        """Let verdicts be written, and add what the log shows of them to ``lines``; each step is one object."""
        for name in applied.gone:
            self._refused.pop((kind, *name), None)
            self._writer.forget(self._path_of(kind, name))
            yield
        for one in applied.judged:
            self._writer.want(self._path_of(kind, one.name), one.item, one.verdict)
            lines += self._line(kind, one)
            yield

    def _line(self, kind: str, judged: Judged) -> list[str]:
        """Return the line for the log about an object that is not used as it is written, once for each verdict."""
        key, verdict = (kind, *judged.name), judged.verdict
        if verdict.reason == "Accepted":
            self._refused.pop(key, None)
        elif self._refused.get(key) != verdict:
            self._refused[key] = verdict
            return [f"{kind} {judged.name.name} of {GROUPS[judged.name.group]}: {verdict.reason}: {verdict.message}"]
        return []

    def _path_of(self, kind: str, name: ObjectName) -> str:
        return f"/apis/{GROUPS[name.group]}/{VERSION}/namespaces/{self._namespace}/{PLURALS[kind]}/{name.name}"

    def _warn_of_missing(self) -> None:
        for kind in self._kinds:
            if kind.missing and kind.kept.kind not in self._warned_missing:
                self._warned_missing.add(kind.kept.kind)
                log.warning("%s; installed later, they are used within a minute", kind.trouble)
            elif not kind.missing:
                self._warned_missing.discard(kind.kept.kind)
