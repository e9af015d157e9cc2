"""Engines and the real picker in virtual time: one event after the other, the clock jumping between them.

    arrival ─► Director.place ─► (network) ─► Engine.submit ─► Started, Finished ─► Director.ended ─► the next arrivals

Everything that happens follows from the seed: the workload, the picker's own lots, the order of equal times.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from epp.admission import Arrival
from epp.config.plan import Plan
from epp.core import Core
from epp.decision import Cause, Outcome, RequestHead, RequestLabels, Usage
from epp.errors import EppError
from epp.pool import Endpoint
from epp.scrape.pace import Pace
from epp.settings import Settings
from epp.sim.engine import Engine
from epp.sim.job import NO_HITS, Finished, Hits, Job, RefusedError, Started
from epp.sim.preset import Preset
from epp.simulate.arrivals import Source
from epp.simulate.prompts import Ask, Prompts
from epp.simulate.scraped import Rounds, ScrapedEngine, Scraping
from scorers.base import Prompt, Request, Tier

IDENTITY = b"simulated"
TIMED_EVERY = 8
"""Asking for a thread's CPU time can take longer than a decision."""
_ENGINE, _SUBMIT, _ARRIVAL = range(3)
"""Of things that happen at the same time, what engines do comes first."""


@dataclass(slots=True)
class Record:
    """One request, from its arrival to its end. Units: virtual seconds, tokens."""

    ask: Ask
    arrived_at: float
    endpoint: int
    pick_id: int
    predicted_tokens: int
    """What the picker took to be cached there."""
    admitted_at: float = 0.0
    first_at: float = 0.0
    ended_at: float = 0.0
    hits: Hits = NO_HITS
    refused: str = ""
    """Who cannot serve it, and why; empty for one that was served."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """What came of one stage."""

    began_at: float
    records: list[Record]
    """In order of arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """What is around the engines. Units: seconds."""

    network_s: float = 0.001
    """From the picker's answer to the engine. A guess."""
    ingest_token_s: float = 0.0
    """Before the engine's scheduler sees a prompt, for each of its tokens: they are received and made of text."""
    scrape_s: float | None = None
    """Between two scrapes of an endpoint; None: the picker's own pace for as many endpoints."""
    tells_tiers: bool = True
    """Whether the engines say what their tiers hold, as kvengine does."""
    response_seen: bool = True
    """Whether the picker sees responses begin, as it does in a gateway; in the lean mode it does not."""


class Fleet:
    """A picker and its endpoints. ``run`` may be called again: caches, indices and the clock go on.

    Owner: one caller.
    """

    def __init__(
        self, preset: Preset, plan: Plan, endpoints: int, seed: int = 0, settings: FleetSettings | None = None
    ) -> None:
        self.now = 0.0
        self.settings = settings = settings or FleetSettings()
        self.decision_seconds: list[float] = []
        """CPU time that the picker took for one in ``TIMED_EVERY`` decisions."""
        self.core = Core(plan, Settings(pool_name="simulated"), lambda: self.now)
        self.engines = [Engine(preset) for _ in range(endpoints)]
        self.prompts = Prompts(preset.block_tokens, seed)
        self._model = preset.model
        self._labels = RequestLabels(model_name=preset.model, target_model_name=preset.model)
        self.core.pool.replace(
            [Endpoint(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:8000") for n in range(len(self.engines))]
        )
        self._slots = [candidate.slot for candidate in self.core.pool.candidates()]
        self._position = {slot: n for n, slot in enumerate(self._slots)}
        scraping = Scraping(settings.scrape_s or Pace().at_pick(endpoints), tells_tiers=settings.tells_tiers)
        random = Random(seed)
        phases = [random.random() * scraping.interval_s for _ in self.engines]
        self._scraped = [ScrapedEngine(engine, scraping, p) for engine, p in zip(self.engines, phases, strict=True)]
        self._rounds = Rounds(scraping, phases)
        self._seen = [-1.0] * len(self.engines)  # when the scrape began that the pool has
        self._due: list[float | None] = [None] * len(self.engines)
        self._heap: list[tuple[float, int, int, int | Ask | tuple[Record, Job]]] = []
        self._pushed = 0
        self._in_engine: dict[str, Record] = {}
        self._requests = 0

    def run(self, source: Source, progress: Callable[[Record], None] | None = None) -> StageRun:
        """Serve a stage to its end."""
        began, records, heap = self.now, list[Record](), self._heap
        for arriving in source.begin():
            self._push(began + arriving.delay_s, _ARRIVAL, arriving.ask)
        while heap:
            at, kind, _, what = heapq.heappop(heap)
            if kind == _ENGINE:
                if self._due[what] != at:  # type: ignore[index]
                    continue  # it was told something since
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
        """Let nothing arrive for ``seconds``."""
        self.now += seconds

    def _push(self, at: float, kind: int, what: int | Ask | tuple[Record, Job]) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at, kind, self._pushed, what))

    def _arrive(self, ask: Ask) -> Record:
        self._observe()
        self._requests += 1
        data, tokens = self.prompts.data(ask), ask.prompt_tokens
        name = str(self._requests)
        headers = {"x-session-id": ask.session} if ask.session else {}
        request = Request(
            id=name,
            model=self._model,
            target_model=self._model,
            prompts=(Prompt(IDENTITY, data),),
            prompt_tokens=tokens,
            streaming=True,
            headers=headers,
            received_s=self.now,
        )
        arrival = Arrival(RequestHead(headers), request, self._labels, len(data))
        timed = self._requests % TIMED_EVERY == 1
        began = time.thread_time() if timed else 0.0
        try:
            decision = self.core.director.place(arrival, seen=self.settings.response_seen)
        except EppError as error:
            return Record(ask, self.now, -1, 0, 0, ended_at=self.now, refused=f"the picker: {error}")
        finally:
            if timed:
                self.decision_seconds.append(time.thread_time() - began)
        chosen = decision.chosen[0]
        predicted = max([cached.tokens.get(chosen.slot, 0) for cached in request.cached.values()], default=0)
        record = Record(ask, self.now, self._position[chosen.slot], decision.pick_id, predicted)
        job = Job(name, self.prompts.keys(ask), tokens, ask.output_tokens)
        delay_s = self.settings.network_s + tokens * self.settings.ingest_token_s
        self._push(self.now + delay_s, _SUBMIT, (record, job))
        return record

    def _submit(self, record: Record, job: Job) -> list[Record]:
        """Hand ``job`` to its engine; returns the record if that refuses."""
        n = record.endpoint
        self._scraped[n].before(self.now)
        try:
            self.engines[n].submit(job, self.now)
        except RefusedError as error:
            record.refused, record.ended_at = f"the engine: {error}", self.now
            self.core.director.ended(record.pick_id, Outcome(Cause.COMPLETED, status=400))
            return [record]
        self._in_engine[job.id] = record
        self._schedule(n)
        return []

    def _advance(self, n: int) -> list[Record]:
        """Let engine ``n`` do what is due; returns the requests that ended."""
        self._scraped[n].before(self.now)
        ended = []
        for event in self.engines[n].advance(self.now):
            if isinstance(event, Started):
                self._started(self._in_engine[event.job.id], event)
            else:
                ended.append(self._finished(self._in_engine.pop(event.job.id), event))
        self._due[n] = None
        self._schedule(n)
        return ended

    def _started(self, record: Record, event: Started) -> None:
        record.first_at, record.admitted_at, record.hits = event.at, event.admitted_at, event.hits
        if self.settings.response_seen:
            self.core.director.answering(record.pick_id)

    def _finished(self, record: Record, event: Finished) -> Record:
        record.ended_at = event.at
        outcome = Outcome(Cause.COMPLETED, status=200, duration_s=event.at - record.arrived_at)
        if self.settings.response_seen:
            outcome.ttft_s, outcome.streaming = record.first_at - record.arrived_at, True
            outcome.usage = self._usage(record, event.job)
        self.core.director.ended(record.pick_id, outcome)
        return record

    def _usage(self, record: Record, job: Job) -> Usage:
        hits = record.hits
        by_tier = {Tier.GPU: hits.gpu, Tier.CPU: hits.cpu} if self.settings.tells_tiers else {}
        return Usage(job.prompt_tokens, job.output_tokens, hits.gpu + hits.cpu, by_tier)

    def _schedule(self, n: int) -> None:
        at = self.engines[n].next_at()
        if at != self._due[n]:
            self._due[n] = at
            if at is not None:
                self._push(at, _ENGINE, n)

    def _observe(self) -> None:
        """Tell the pool of the scrapes since the last decision."""
        pool = self.core.pool
        for n in self._rounds.since_last(self.now):
            scrape = self._scraped[n].visible(self.now)
            if scrape.began_at > self._seen[n]:
                self._seen[n] = scrape.began_at
                pool.observe(self._slots[n], scrape.metrics, scrape.began_at)
