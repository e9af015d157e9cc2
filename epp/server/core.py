"""The parts that decide: the pool, the prefix cache, admission, the director and the counters.

They have no socket, no task and no file: ``epp.server.app`` adds those and passes on what they read.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from epp.config.plan import Plan
from epp.decision import Cause, Outcome
from epp.errors import ConfigError
from epp.extproc.access_log import AccessLog
from epp.extproc.body_budget import BodyBudget
from epp.flowcontrol.gate import Gate
from epp.metrics.accuracy import Accuracy
from epp.metrics.cost import cost_readings
from epp.metrics.prefix import prefix_readings
from epp.metrics.telemetry import Telemetry
from epp.picking.director import Director
from epp.picking.model_rewrites import Rule
from epp.picking.request_steps import RequestSteps
from epp.pool.ledger import Ledger
from epp.pool.pool import Pool
from epp.pool.restarts import Restarts
from epp.scrape.reading.hit_counters import Balance
from epp.served.catalog import Catalog
from epp.served.router import ModelRouter
from epp.server.settings import Settings
from epp.tokens.step import TokenStep
from epp.tracing.opening import open_tracer
from epp.tracing.queue import TraceQueue
from epp.tracing.settings import TraceSettings
from epp.tracing.tracer import Tracer
from scorers.base import Candidate
from scorers.precise.cache import PreciseCache
from scorers.prefix.cache import PrefixCache

log = logging.getLogger(__name__)


class Core:
    """The parts that decide, wired by a plan, which may be replaced. Owner: the event loop."""

    def __init__(self, plan: Plan, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Wire the parts by ``plan``. ``clock`` times picks, their leases and scrapes; it may jump."""
        self.plan = plan
        self.clock = clock
        self.pool = Pool(settings.pool_name)
        # A random start, so that late reports of an earlier picker's picks match none of ours.
        self.ledger = Ledger(self.pool, first_id=random.getrandbits(62))
        self.balance = Balance(clock)
        self.pool.listeners.append(self.balance)
        self.telemetry = Telemetry(
            sample_ratio=settings.sample_ratio,
            producers=producer_types(plan),
            predicted=self.balance.picked,
        )
        self.traces: TraceQueue | None = None
        self.gate = Gate(self.pool, self.telemetry.requests, clock)
        self._objectives: dict[str, int] = {}  # of custom resources
        self.accuracy = Accuracy(clock)
        self.tokens = TokenStep(clock)
        """The app opens and closes its source."""
        self.catalog = Catalog(self.pool, self._forget)
        """Filled by ``epp.served.lister`` with the models that the endpoints list."""
        self.pool.listeners.append(self.catalog)
        self.director = Director(
            self._steps(plan),
            self.pool,
            self.ledger,
            self.telemetry,
            tracer=self._tracer(settings.tracing),
            clock=clock,
            learners=(self.accuracy.observed,),
            tells_decisions=settings.exchange.tell_decisions,
        )
        self.bodies = BodyBudget(settings.max_held_bytes)
        """Shared by all exchanges."""
        self.access_log = AccessLog(self.director.picks)
        self._asks_for_responses = settings.exchange.may_ask
        self._sees_response_headers = plan.changes_responses or settings.cluster.pool is not None
        self.ledger.on_close.append(self._closed)
        self.director.picks.on_unused.append(self._unused)
        self.on_use: list[Callable[[], None]] = []
        """Callbacks for a plan that was replaced."""
        self._listen(None, plan.prefix_cache)
        self.restarts = Restarts(self.pool, self._forget)
        self.pool.listeners.append(self.restarts)
        self.precise: PreciseCache | None = None
        """Filled by ``epp.kvevents`` with the engines' KV events; None if no plugin uses them."""
        if plan.precise is not None:
            self.precise = plan.precise.new_cache(clock)
            self.pool.listeners.append(self.precise)
        self._expose()

    def use(self, plan: Plan) -> Iterator[None]:
        """Serve by ``plan`` from the next request on; the prefix index stays if its tiers do.

        Returns the work that is left, in small steps: a large index that is no longer used is taken apart.

        Raises: ConfigError for a change that takes a restart; nothing has changed then.
        """
        before = self.plan
        for path, old, new in (
            ("dataLayer.discovery", before.discovery, plan.discovery),
            ("dataLayer.sources", before.scrape, plan.scrape),
            (
                "dataLayer.sources (what plugins learn from the Kubernetes API)",
                before.notifications,
                plan.notifications,
            ),
        ):
            if old != new:
                raise ConfigError(f"{path}: has changed, which takes a restart; restart, or put it back")
        if self._asks_for_responses and plan.changes_responses and not self._sees_response_headers:
            raise ConfigError(
                "inferenceModelRewrites, or a plugin that sets response headers: the first of them takes a restart, "
                "after which the proxy sends the headers of responses; restart, or take it out"
            )
        if (before.precise and before.precise.followed_by) != (plan.precise and plan.precise.followed_by):
            raise ConfigError(
                "plugins: how precise-prefix-cache-producer follows the engines has changed, which takes a restart; "
                "restart, or put it back"
            )
        everyone, known = self.pool.everyone(), before.prefix_cache
        if plan.prefix_cache is not None and known is not None:
            if known.take_over(plan.prefix_cache.producers, everyone):
                plan = replace(plan, prefix_cache=known)
            else:
                log.warning("the producers' tiers have changed: what the endpoints hold is learned anew")
        rubble: Iterator[None] = iter(())
        if plan.prefix_cache is not known:
            rubble = self._listen(known, plan.prefix_cache)
        if plan.precise is not None:
            plan.precise.source = self.precise
        plan.profile.failures = before.profile.failures
        plan.rewrites.take_over(before.rewrites)
        self.telemetry.producers = producer_types(plan)
        self.director.use(self._steps(plan))
        self.plan = plan
        for used in self.on_use:
            used()
        return rubble

    @property
    def configured_objectives(self) -> Collection[str]:
        """The names of the configuration's objectives."""
        return self.plan.admission.objectives.keys()

    @property
    def configured_models(self) -> Collection[str | None]:
        """The models for which the configuration has a rewrite; None is every model."""
        return self.plan.rewrites.configured

    def change_objectives(self, priorities: Mapping[str, int | None]) -> None:
        """Give objectives these priorities, beside those of the configuration; None removes one."""
        for name, priority in priorities.items():
            if priority is None:
                self._objectives.pop(name, None)
            else:
                self._objectives[name] = priority
        self.director.use(self._steps(self.plan))

    def stage_rewrites(self, rules: Mapping[str | None, Rule | None]) -> Iterator[None]:
        """Prepare that these rules are followed, beside those of the configuration; None removes one."""
        return self.plan.rewrites.resources.stage(rules)

    def change_rewrites(self) -> Iterator[None]:
        """Follow what was staged from the next request on. Returns the work that is left, in small steps."""
        return self.plan.rewrites.resources.use()

    def _steps(self, plan: Plan) -> RequestSteps:
        admission = replace(plan.admission, objectives={**self._objectives, **plan.admission.objectives})
        return RequestSteps(
            plan.parser,
            plan.profile,
            self.gate.use(admission if plan.can_shed else plan.admission),
            admission.objectives,
            self._tokens(plan),
            ModelRouter(self.catalog, plan.served),
        )

    def _tokens(self, plan: Plan) -> TokenStep | None:
        if plan.tokens is None:
            return None
        self.tokens.limits = plan.tokens.limits
        return self.tokens

    def _listen(self, known: PrefixCache | None, now: PrefixCache | None) -> Iterator[None]:
        """Make ``now`` the pool's listener in place of ``known``; return the steps that take ``known`` apart."""
        if known is not None:
            self.pool.listeners.remove(known)
        if now is not None:
            self.pool.listeners.append(now)
            for candidate in self.pool.everyone():
                now.endpoint_added(candidate)
        return iter(()) if known is None else known.clear()

    def _forget(self, candidate: Candidate) -> None:
        """Forget all blocks of the endpoint, whose engine has lost its cache."""
        if self.plan.prefix_cache is not None:
            self.plan.prefix_cache.endpoint_added(candidate)

    def ended(self, pick_id: int, cause: Cause) -> None:
        """End a pick of which no outcome is known except ``cause``."""
        self.director.picks.ended(pick_id, Outcome(cause))

    def _closed(self, pick_id: int) -> None:
        if self.plan.prefix_cache is not None:
            self.plan.prefix_cache.ended(pick_id, self.clock())

    def _unused(self, pick_id: int) -> None:
        if self.plan.prefix_cache is not None:
            self.plan.prefix_cache.unused(pick_id)

    def expire(self) -> None:
        """End the picks whose lease has expired."""
        for pick_id, cause in self.ledger.expire(self.clock()):
            self.ended(pick_id, cause)

    def _tracer(self, settings: TraceSettings | None) -> Tracer | None:
        opened = open_tracer(settings) if settings is not None else None
        if opened is None:
            return None
        tracer, self.traces = opened
        self.telemetry.gauge_source(tracer.readings)
        return tracer

    def _expose(self) -> None:
        for source in (
            self.director.picks.readings,
            self.gate.readings,
            lambda: self.tokens.counts.readings() if self.plan.tokens is not None else (),
            self.bodies.readings,
            self.access_log.readings,
            lambda: self.plan.profile.readings(),
            lambda: self.plan.rewrites.readings(),
            self.accuracy.readings,
            self.restarts.readings,
            self.catalog.readings,
            self.balance.readings,
            prefix_readings(lambda: self.plan.prefix_cache, self.pool.candidates),
            cost_readings(lambda: self.plan.profile.producers, self.pool.candidates),
        ):
            self.telemetry.gauge_source(source)


def producer_types(plan: Plan) -> dict[str, str]:
    """Return the type of each producer, by the name under which it writes."""
    types = {producer.name: producer.type_name for producer in plan.profile.producers}
    if plan.precise is not None:
        types.update(dict.fromkeys(plan.precise.names, plan.precise.type_name))
    return types
