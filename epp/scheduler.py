"""One decision: filters narrow the candidates, scorers rate them, a picker chooses.

    producers ─► filters ─► scorers × weights, summed ─► picker

A plugin is somebody's code. One that raises, or answers what its seam does not allow, has no opinion on this request:
it is skipped, counted and logged with its traceback, and the request goes on.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from epp.errors import Saturated
from scorers.base import Candidate, Filter, Picker, Plugin, Producer, Request, Scorer

log = logging.getLogger(__name__)


Spent: TypeAlias = tuple[str, Plugin[Any], float]
"""An extension point, a plugin, and how long it took there. Units: seconds."""


class Schedule(msgspec.Struct, frozen=True):
    """What a profile decided for one request, and why."""

    chosen: tuple[Candidate, ...]
    """The pick first, then the fallbacks in order."""
    candidates: tuple[Candidate, ...]
    """Those that were scored."""
    totals: list[float]
    """Weighted sum for each of ``candidates``."""
    scores: Mapping[str, tuple[float, list[float]]]
    """By scorer name: its weight and its score of each of ``candidates``."""
    spent: list[Spent]


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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.filters = tuple(filters)
        self.producers = tuple(producers)
        self.scorers = tuple(scorers)
        self.picker = picker
        self.failures: Counter[str] = Counter()
        remembering = [scorer for scorer, _ in scorers if type(scorer).picked is not Scorer.picked]
        self._learners: tuple[Producer[Any] | Scorer[Any], ...] = (*producers, *remembering)
        self._clock = clock

    def schedule(self, request: Request, candidates: Sequence[Candidate]) -> Schedule:
        """Choose among ``candidates`` (at least one). Raises: Saturated when the filters leave none."""
        spent: list[Spent] = []
        self._produce(request, candidates, spent)
        kept = self._filter(request, candidates, spent)
        scores = self._score(request, kept, spent)
        totals = weighted_sum(scores.values(), len(kept))
        chosen = self._pick(kept, totals, spent)
        return Schedule(chosen, kept, totals, scores, spent)

    def picked(self, request: Request, candidate: Candidate) -> list[Spent]:
        """Tell every producer and scorer where ``request`` goes, in the same step as the pick."""
        spent: list[Spent] = []
        began = self._clock()
        for learner in self._learners:
            try:
                learner.picked(request, candidate)
            except Exception:
                self._failed(learner)
            began = self._note(spent, "PreRequest", learner, began)
        return spent

    def _produce(self, request: Request, candidates: Sequence[Candidate], spent: list[Spent]) -> None:
        began = self._clock()
        for producer in self.producers:
            try:
                producer.produce(request, candidates)
            except Exception:
                self._failed(producer)
            began = self._note(spent, "DataProducer", producer, began)

    def _filter(self, request: Request, candidates: Sequence[Candidate], spent: list[Spent]) -> tuple[Candidate, ...]:
        kept = tuple(candidates)
        began = self._clock()
        for narrower in self.filters:
            try:
                kept = tuple(narrower.keep(request, kept))
            except Exception:
                self._failed(narrower)
            began = self._note(spent, "Filter", narrower, began)
            if not kept:
                raise Saturated("no endpoints available for the given request")
        return kept

    def _score(
        self, request: Request, candidates: Sequence[Candidate], spent: list[Spent]
    ) -> dict[str, tuple[float, list[float]]]:
        scores: dict[str, tuple[float, list[float]]] = {}
        began = self._clock()
        for scorer, weight in self.scorers:
            try:
                scores[scorer.name] = (weight, clamped(scorer.score(request, candidates), len(candidates)))
            except Exception:
                self._failed(scorer)
            began = self._note(spent, "Scorer", scorer, began)
        return scores

    def _pick(self, candidates: Sequence[Candidate], totals: list[float], spent: list[Spent]) -> tuple[Candidate, ...]:
        began = self._clock()
        try:
            positions = self.picker.pick(candidates, totals)
            if not positions or min(positions) < 0 or len(set(positions)) < len(positions):
                raise ValueError(f"positions must be distinct and from 0 to {len(candidates) - 1}: {positions}")  # noqa: TRY301
            chosen = tuple([candidates[position] for position in positions])
        except Exception:
            self._failed(self.picker)
            chosen = (best(candidates, totals),)
        self._note(spent, "Picker", self.picker, began)
        return chosen

    def _note(self, spent: list[Spent], point: str, plugin: Plugin[Any], began: float) -> float:
        now = self._clock()
        spent.append((point, plugin, now - began))
        return now

    def _failed(self, plugin: Plugin[Any]) -> None:
        """Count the exception being handled; log it the 1st, 2nd, 4th, 8th ... time, so that no log fills up."""
        self.failures[plugin.name] += 1
        times = self.failures[plugin.name]
        if times & (times - 1) == 0:
            log.exception("plugin %r failed and was skipped (%d times so far)", plugin.name, times)


def clamped(scores: list[float], wanted: int) -> list[float]:
    """``scores``, each within [0, 1]. Raises: ValueError for a wrong number of them, or one that is not a number."""
    if len(scores) != wanted:
        raise ValueError(f"{len(scores)} scores for {wanted} candidates")
    total = sum(scores)
    if total != total:  # only NaN differs from itself
        raise ValueError("a score is not a number")
    if min(scores) >= 0.0 and max(scores) <= 1.0:
        return scores
    return [min(1.0, max(0.0, score)) for score in scores]


def weighted_sum(scores: Iterable[tuple[float, list[float]]], count: int) -> list[float]:
    """Weight × score, summed over the scorers, for each of ``count`` candidates."""
    totals = [0.0] * count
    for weight, column in scores:
        totals = [total + weight * score for total, score in zip(totals, column, strict=True)]
    return totals


def best(candidates: Sequence[Candidate], totals: Sequence[float]) -> Candidate:
    """The candidate of the highest total; of equals, the one with the fewest requests in flight."""
    position = max(range(len(candidates)), key=lambda i: (totals[i], -candidates[i].in_flight))
    return candidates[position]
