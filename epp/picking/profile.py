"""One decision: filters narrow the candidates, scorers rate them, a picker chooses.

    producers ─► filters ─► scorers × weights, summed ─► picker

A plugin may be third-party code. One that raises, or returns what its interface does not allow, has no opinion on this
request: it is skipped, counted and logged with its traceback, and the request goes on.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from epp.decision import Usage
from epp.errors import Saturated
from epp.metrics.gauges import Reading
from epp.picking.plugin_results import checked_details, checked_headers
from epp.picking.totals import best, clamped, weighted_sum
from epp.picking.usage_reporter import Report, RequestAttributeReporter
from scorers.base import Candidate, Detail, Filter, Observation, Picker, Plugin, Producer, Request, Scorer

log = logging.getLogger(__name__)

PluginT = TypeVar("PluginT", bound=Plugin[Any])
RunT = TypeVar("RunT")

Timer: TypeAlias = Callable[[float], None]
"""Called with the duration of each run of one plugin at one extension point. Units: seconds."""
Timers: TypeAlias = Callable[[str, str, str], Timer]
"""Returns the timer for an extension point, a plugin type and a plugin name."""


class Schedule(msgspec.Struct, frozen=True):
    """The decision of a profile about one request, with its reasons."""

    chosen: tuple[Candidate, ...]
    """The pick first, then the fallbacks in order."""
    candidates: tuple[Candidate, ...]
    """The candidates that were scored."""
    totals: list[float]
    """The weighted sum for each of ``candidates``."""
    scores: Mapping[str, tuple[float, list[float]]]
    """By scorer name: the weight, and the score of each of ``candidates``."""

    def summary(self, shown: int = 8) -> str:
        """Return the pick and each scorer's part in the totals of the first candidates, for the debug log."""
        lines = []
        for i, candidate in enumerate(self.candidates[:shown]):
            parts = [f"{name} {weight:g} x {column[i]:.3f}" for name, (weight, column) in self.scores.items()]
            lines.append(f"{candidate.address} {self.totals[i]:.3f} = {' + '.join(parts)}")
        return f"to {','.join(c.address for c in self.chosen)}; {'; '.join(lines)}"


class Profile:
    """Filters, producers, scorers with weights, and a picker.

    Owner: the event loop. Keeps nothing of a request; ``failures`` counts by plugin name.
    """

    def __init__(
        self,
        filters: Sequence[Filter[Any]],
        producers: Sequence[Producer[Any]],
        scorers: Sequence[tuple[Scorer[Any], float]],
        picker: Picker[Any],
        *,
        reporters: Sequence[RequestAttributeReporter] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.filters = tuple(filters)
        self.producers = tuple(producers)
        self.scorers = tuple(scorers)
        self.picker = picker
        self.reporters = tuple(reporters)
        self.failures: Counter[str] = Counter()
        self._clock = clock
        self.time_with(untimed)

    def time_with(self, timers: Timers) -> None:
        """Report the duration of every run to ``timers``, which are looked up once: a request has some ten runs."""

        def timed(point: str, plugins: Iterable[PluginT]) -> list[tuple[PluginT, Timer]]:
            return [(plugin, timers(point, plugin.type_name, plugin.name)) for plugin in plugins]

        scorers = [scorer for scorer, _ in self.scorers]
        # One plugin may have two roles.
        plugins = tuple(dict.fromkeys((*self.producers, *self.filters, *scorers, self.picker)))
        self._plugins = plugins
        learners = [plugin for plugin in plugins if type(plugin).picked is not Plugin.picked]
        self._producing = timed("DataProducer", self.producers)
        self._filtering = timed("Filter", self.filters)
        self._scoring = [((s, weight), timers("Scorer", s.type_name, s.name)) for s, weight in self.scorers]
        self._picking = timers("Picker", self.picker.type_name, self.picker.name)
        self._learning = timed("PreRequest", learners)
        self._observing = [plugin for plugin in plugins if type(plugin).observed is not Plugin.observed]
        self._heading = [plugin for plugin in plugins if plugin.sets_response_headers]

    def schedule(self, request: Request, candidates: Sequence[Candidate]) -> Schedule:
        """Choose among ``candidates``, at least one. Raises: Saturated if the filters leave none."""
        self._produce(request, candidates)
        kept = self._filter(request, candidates)
        scores = self._score(request, kept)
        totals = weighted_sum(scores.values(), len(kept))
        return Schedule(self._pick(request, kept, totals), kept, totals, scores)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Pass the pick to every plugin that remembers picks, in the same step as the pick."""
        for learner in self._timed(self._learning):
            try:
                learner.picked(request, candidate)
            except Exception:
                self._failed(learner)

    @property
    def observes(self) -> bool:
        """Return whether any plugin learns from responses."""
        return bool(self._observing)

    def observed(self, observation: Observation) -> None:
        """Pass the observation of a request that has ended to every plugin that learns."""
        for plugin in self._observing:
            try:
                plugin.observed(observation)
            except Exception:
                self._failed(plugin)

    def details(self, request: Request, candidates: Sequence[Candidate]) -> dict[str, Sequence[Detail]]:
        """Return the explanations of ``candidates`` by plugin name; called before the pick is recorded."""
        explained: dict[str, Sequence[Detail]] = {}
        for plugin in self._plugins:
            if type(plugin).details is Plugin.details:
                continue
            try:
                if details := checked_details(plugin.details(request, candidates), len(candidates)):
                    explained[plugin.name] = details
            except Exception:
                self._failed(plugin)
        return explained

    @property
    def sets_response_headers(self) -> bool:
        """Return whether any plugin may set response headers."""
        return bool(self._heading)

    def response_headers(self, request: Request, candidate: Candidate) -> dict[str, str]:
        """Return the headers that plugins set on the response; if two plugins set one header, the later one wins."""
        headers: dict[str, str] = {}
        for plugin in self._heading:
            try:
                headers |= checked_headers(plugin.response_headers(request, candidate))
            except Exception:
                self._failed(plugin)
        return headers

    def reports(self, usage: Usage) -> list[Report]:
        """Return the reports to the proxy about a response with this ``usage``."""
        reports = []
        for reporter in self.reporters:
            try:
                report = reporter.report(usage)
            except Exception:
                self._failed(reporter)
            else:
                reports += [] if report is None else [report]
        return reports

    def readings(self) -> Iterator[Reading]:
        """Return the failures of plugins, for ``Telemetry.gauge_source``."""
        yield Reading(
            "tierwise_plugin_failures",
            "Times a plugin raised or answered what it must not, and was skipped.",
            ("plugin_name",),
            [((name,), count) for name, count in self.failures.items()],
            counter=True,
        )

    def _produce(self, request: Request, candidates: Sequence[Candidate]) -> None:
        for producer in self._timed(self._producing):
            try:
                producer.produce(request, candidates)
            except Exception:
                self._failed(producer)

    def _filter(self, request: Request, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        kept = tuple(candidates)
        for narrower in self._timed(self._filtering):
            try:
                kept = tuple(narrower.keep(request, kept))
            except Exception:
                self._failed(narrower)
            if not kept:
                raise Saturated("no endpoints available for the given request")
        return kept

    def _score(self, request: Request, candidates: Sequence[Candidate]) -> dict[str, tuple[float, list[float]]]:
        scores: dict[str, tuple[float, list[float]]] = {}
        for scorer, weight in self._timed(self._scoring):
            try:
                scores[scorer.name] = (weight, clamped(scorer.score(request, candidates), len(candidates)))
            except Exception:
                self._failed(scorer)
        return scores

    def _pick(self, request: Request, candidates: Sequence[Candidate], totals: list[float]) -> tuple[Candidate, ...]:
        began = self._clock()
        try:
            positions = self.picker.pick_for(request, candidates, totals)
            if not positions or min(positions) < 0 or len(set(positions)) < len(positions):
                raise ValueError(f"positions must be distinct and from 0 to {len(candidates) - 1}: {positions}")  # noqa: TRY301
            chosen = tuple([candidates[position] for position in positions])
        except Exception:
            self._failed(self.picker)
            chosen = (best(candidates, totals),)
        self._picking(self._clock() - began)
        return chosen

    def _timed(self, runs: Iterable[tuple[RunT, Timer]]) -> Iterator[RunT]:
        """Iterate over ``runs``, and report to each timer how long the loop's body took, however that is left."""
        clock = self._clock
        began = clock()
        for run, took in runs:
            try:
                yield run
            finally:
                now = clock()
                took(now - began)
                began = now

    def _failed(self, plugin: Plugin[Any]) -> None:
        """Count the exception being handled; log it the 1st, 2nd, 4th, 8th ... time, so that no log fills up."""
        self.failures[plugin.name] += 1
        times = self.failures[plugin.name]
        if times & (times - 1) == 0:
            log.exception("plugin %r failed and was skipped (%d times so far)", plugin.name, times)


def untimed(extension_point: str, plugin_type: str, plugin_name: str) -> Timer:  # noqa: ARG001
    """Return a timer that does nothing."""
    return lambda seconds: None  # noqa: ARG005
