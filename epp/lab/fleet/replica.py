"""One picker before the fleet: its own index, ledger and scrapes. It sees other pickers' load only in scrapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from epp.config.plan import Plan
from epp.decision import Cause, Outcome, RequestHead, RequestLabels, Usage
from epp.errors import EppError
from epp.flowcontrol.admission import Arrival
from epp.lab.engine.engine import Engine
from epp.lab.engine.job import Finished
from epp.lab.fleet.prompts import Ask
from epp.lab.fleet.record import Record
from epp.lab.fleet.scraped import Rounds, ScrapedEngine, Scraping
from epp.pool.pool import Endpoint
from epp.server.core import Core
from epp.server.settings import Settings
from scorers.base import Prompt, Request, Tier

IDENTITY = b"simulated"
TIMED_EVERY = 8
"""One decision in this many is timed, since reading a thread's CPU time can take longer than a decision."""


class Replica:
    """A picker in virtual time. Owner: the fleet, which calls ``before`` an engine changes and reports outcomes."""

    def __init__(
        self,
        plan: Plan,
        model: str,
        engines: Sequence[Engine],
        scraping: Scraping,
        phases_s: Sequence[float],
        clock: Callable[[], float],
        *,
        response_seen: bool,
    ) -> None:
        """``phases_s`` are the times of the first scrape of each of ``engines``."""
        self.decision_seconds: list[float] = []
        """CPU time of one in ``TIMED_EVERY`` decisions."""
        self.core = Core(plan, Settings(pool_name="simulated"), clock)
        self.core.pool.replace([Endpoint(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:8000") for n in range(len(engines))])
        self._model = model
        self._clock = clock
        self._tells_tiers = scraping.tells_tiers
        self._response_seen = response_seen
        self._labels = RequestLabels(model_name=model, target_model_name=model)
        self._slots = [candidate.slot for candidate in self.core.pool.candidates()]
        self._position = {slot: n for n, slot in enumerate(self._slots)}
        self._scraped = [ScrapedEngine(engine, scraping, p) for engine, p in zip(engines, phases_s, strict=True)]
        self._rounds = Rounds(scraping, phases_s)
        self._seen = [-1.0] * len(engines)  # when the scrape that the pool has began
        self._picks = 0

    def before(self, n: int, now: float) -> None:
        """Notify the picker that engine ``n`` is about to change."""
        self._scraped[n].before(now)

    def place(self, ask: Ask, name: str, data: bytes) -> Record:
        """Pick an endpoint for the request ``name``, or refuse it."""
        now, tokens = self._clock(), ask.prompt_tokens
        self._observe(now)
        headers = {"x-session-id": ask.session} if ask.session else {}
        request = Request(
            id=name,
            model=self._model,
            target_model=self._model,
            prompts=(Prompt(IDENTITY, data),),
            prompt_tokens=tokens,
            streaming=True,
            headers=headers,
            received_s=now,
        )
        arrival = Arrival(RequestHead(headers), request, self._labels, len(data))
        self._picks += 1
        timed = self._picks % TIMED_EVERY == 1
        began = time.thread_time() if timed else 0.0
        try:
            decision = self.core.director.place(arrival, seen=self._response_seen)
        except EppError as error:
            return Record(ask, now, -1, 0, None, self, ended_at=now, refused=f"the picker: {error}")
        finally:
            if timed:
                self.decision_seconds.append(time.thread_time() - began)
        chosen = decision.chosen[0]
        predicted = max([cached.tokens.get(chosen.slot, 0) for cached in request.cached.values()], default=0)
        return Record(ask, now, self._position[chosen.slot], decision.pick_id, predicted, self)

    def refused(self, record: Record) -> None:
        """Report that the engine refused the request."""
        self.core.director.picks.ended(record.pick_id, Outcome(Cause.COMPLETED, status=400))

    def started(self, record: Record) -> None:
        """Report that the answer has started."""
        if self._response_seen:
            self.core.director.picks.answering(record.pick_id)

    def finished(self, record: Record, event: Finished) -> None:
        """Report that the request has ended; all its times are known."""
        outcome = Outcome(Cause.COMPLETED, status=200, duration_s=event.at - record.arrived_at)
        if self._response_seen:
            outcome.ttft_s, outcome.streaming = record.first_at - record.arrived_at, True
            hits, job = record.hits, event.job
            by_tier = {Tier.GPU: hits.gpu, Tier.CPU: hits.cpu} if self._tells_tiers else {}
            outcome.usage = Usage(job.prompt_tokens, job.output_tokens, hits.gpu + hits.cpu, by_tier)
        self.core.director.picks.ended(record.pick_id, outcome)

    def _observe(self, now: float) -> None:
        """Pass the scrapes since the last decision to the pool."""
        pool = self.core.pool
        for n in self._rounds.since_last(now):
            scrape = self._scraped[n].visible(now)
            if scrape.began_at > self._seen[n]:
                self._seen[n] = scrape.began_at
                pool.observe(self._slots[n], scrape.metrics, scrape.began_at)
