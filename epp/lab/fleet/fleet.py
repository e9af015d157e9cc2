"""Engines and the real picker in virtual time: one event after the other, the clock jumping between them.

    arrival ─► Director.place ─► (network) ─► Engine.submit ─► Started, Finished ─► Director.ended ─► the next arrivals

Everything that happens follows from the seed: the workload, the pickers' random choices, the order of equal times.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from epp.config.plan import Plan
from epp.lab.engine.engine import Engine
from epp.lab.engine.job import Finished, Job, RefusedError, Started
from epp.lab.engine.preset import Preset
from epp.lab.fleet.arrivals import RequestSource
from epp.lab.fleet.prompts import Ask, Prompts
from epp.lab.fleet.record import Record
from epp.lab.fleet.replica import Replica
from epp.lab.fleet.scraped import Scraping
from epp.scrape.pace import Pace
from epp.server.core import Core

_ENGINE, _SUBMIT, _ARRIVAL = range(3)
"""Of events at the same time, those of engines come first."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """The outcome of one stage."""

    began_at: float
    records: list[Record]
    """In the order of arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """The environment of the engines. Units: seconds."""

    pickers: int = 1
    """Each picker sees only its own picks; a request goes to a random one."""
    past_pickers: float = 0.0
    """The share of requests, chosen at random, that bypass the pickers: they go to each endpoint in turn."""
    network_s: float = 0.001
    """From the picker's answer to the engine. A guess."""
    ingest_token_s: float = 0.0
    """Per prompt token, the time to receive and tokenize a prompt before the engine's scheduler sees it."""
    scrape_s: float | None = None
    """Between two scrapes of an endpoint; None is the picker's own pace for this number of endpoints."""
    tells_tiers: bool = True
    """Whether the engines report the state of their tiers, as kvengine does."""
    response_seen: bool = True
    """Whether the picker sees responses start, as it does in a gateway but not in the lean mode."""


class Fleet:
    """Pickers and their endpoints. ``run`` may be called again: caches, indices and the clock continue.

    Owner: one caller.
    """

    def __init__(
        self,
        preset: Preset,
        plans: Sequence[Plan],
        endpoints: int,
        seed: int = 0,
        settings: FleetSettings | None = None,
    ) -> None:
        """Each of ``plans`` is the plan of one picker."""
        self.now = 0.0
        self.settings = settings = settings or FleetSettings()
        self.engines = [Engine(preset) for _ in range(endpoints)]
        self.prompts = Prompts(preset.block_tokens, seed)
        scraping = Scraping(settings.scrape_s or Pace().at_pick(endpoints), tells_tiers=settings.tells_tiers)
        random = Random(seed)
        self.pickers = [
            Replica(
                plan,
                preset.model,
                self.engines,
                scraping,
                [random.random() * scraping.interval_s for _ in self.engines],
                lambda: self.now,
                response_seen=settings.response_seen,
            )
            for plan in plans
        ]
        self._lots = Random(f"ways {seed}")
        self._past = 0  # requests that bypassed the pickers
        self._due: list[float | None] = [None] * endpoints
        self._heap: list[tuple[float, int, int, int | Ask | tuple[Record, Job]]] = []
        self._pushed = 0
        self._in_engine: dict[str, Record] = {}
        self._requests = 0

    @property
    def core(self) -> Core:
        """The core of the first picker, which makes its decisions."""
        return self.pickers[0].core

    @property
    def decision_seconds(self) -> list[float]:
        """CPU time of each decision that was timed."""
        return [seconds for picker in self.pickers for seconds in picker.decision_seconds]

    @property
    def failures(self) -> dict[str, int]:
        """Per plugin, over all pickers: how often it was skipped because it failed."""
        return dict(sum([picker.core.plan.profile.failures for picker in self.pickers], Counter()))

    def run(self, source: RequestSource, progress: Callable[[Record], None] | None = None) -> StageRun:
        """Serve a stage to its end."""
        began, records, heap = self.now, list[Record](), self._heap
        for arriving in source.begin():
            self._push(began + arriving.delay_s, _ARRIVAL, arriving.ask)
        while heap:
            at, kind, _, what = heapq.heappop(heap)
            if kind == _ENGINE:
                if self._due[what] != at:  # type: ignore[index]
                    continue  # its engine was rescheduled since
                self.now = at
                over = self._advance(what)  # type: ignore[arg-type]
            elif kind == _ARRIVAL:
                self.now = at
                records.append(self._arrive(what))  # type: ignore[arg-type]
                over = records[-1:] if records[-1].refused else []
            else:
                self.now = at
                over = self._submit(*what)  # type: ignore[misc]
            for record in over:
                if progress is not None:
                    progress(record)
                for arriving in source.ended(record.ask):
                    self._push(at + arriving.delay_s, _ARRIVAL, arriving.ask)
        return StageRun(began, records)

    def rest(self, seconds: float) -> None:
        """Advance the clock by ``seconds`` without arrivals."""
        self.now += seconds

    def _push(self, at: float, kind: int, what: int | Ask | tuple[Record, Job]) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at, kind, self._pushed, what))

    def _arrive(self, ask: Ask) -> Record:
        self._requests += 1
        name, picker = str(self._requests), self._receiver()
        if picker is not None:
            record = picker.place(ask, name, self.prompts.data(ask))
        else:
            record = Record(ask, self.now, self._past % len(self.engines), 0, None)
            self._past += 1
        if not record.refused:
            tokens = ask.prompt_tokens
            job = Job(name, self.prompts.keys(ask), tokens, ask.output_tokens)
            delay_s = self.settings.network_s + tokens * self.settings.ingest_token_s
            self._push(self.now + delay_s, _SUBMIT, (record, job))
        return record

    def _receiver(self) -> Replica | None:
        """Return the picker for the next request; None if the request bypasses them."""
        past, pickers = self.settings.past_pickers, self.pickers
        if past and self._lots.random() < past:
            return None
        return pickers[0] if len(pickers) == 1 else self._lots.choice(pickers)

    def _submit(self, record: Record, job: Job) -> list[Record]:
        """Submit ``job`` to its engine; return the record if the engine refuses it."""
        n = record.endpoint
        self._changing(n)
        try:
            self.engines[n].submit(job, self.now)
        except RefusedError as error:
            record.refused, record.ended_at = f"the engine: {error}", self.now
            if record.picker is not None:
                record.picker.refused(record)
            return [record]
        self._in_engine[job.id] = record
        self._schedule(n)
        return []

    def _advance(self, n: int) -> list[Record]:
        """Let engine ``n`` do what is due and return the requests that ended."""
        self._changing(n)
        ended = []
        for event in self.engines[n].advance(self.now):
            if isinstance(event, Started):
                self._started(self._in_engine[event.job.id], event)
            else:
                ended.append(self._finished(self._in_engine.pop(event.job.id), event))
        self._due[n] = None
        self._schedule(n)
        return ended

    def _changing(self, n: int) -> None:
        for picker in self.pickers:
            picker.before(n, self.now)

    def _started(self, record: Record, event: Started) -> None:
        record.first_at, record.admitted_at, record.hits = event.at, event.admitted_at, event.hits
        if record.picker is not None:
            record.picker.started(record)

    def _finished(self, record: Record, event: Finished) -> Record:
        record.ended_at = event.at
        if record.picker is not None:
            record.picker.finished(record, event)
        return record

    def _schedule(self, n: int) -> None:
        at = self.engines[n].next_at()
        if at != self._due[n]:
            self._due[n] = at
            if at is not None:
                self._push(at, _ENGINE, n)
