"""A decision without side effects: the profile's own code and plugins, but nothing is counted, timed or learned.

Random generators of plugins are restored afterwards, so that a trial picks what the next equal request will get. By
contract, filters and scorers do not change their arguments or remember requests that were not picked, so they do not do
so here either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Any

from typing_extensions import override

from epp.errors import Saturated
from epp.picking.profile import Profile, Schedule
from scorers.base import Candidate, Detail, Filter, Plugin, Request


@dataclass
class Narrowing:
    """The result of one filter."""

    name: str
    type_name: str
    seen: int
    """Number of candidates that the filter received."""
    dropped: tuple[Candidate, ...] = ()


@dataclass
class Trial:
    """The course of a decision, up to a refusal."""

    narrowings: list[Narrowing] = field(default_factory=list)
    schedule: Schedule | None = None
    """None if the filters dropped all candidates."""
    refusal: Saturated | None = None
    details: Mapping[str, Sequence[Detail]] = field(default_factory=dict)
    """The remarks of plugins about each scored candidate, by plugin name."""
    failed: tuple[str, ...] = ()
    """Plugins that raised an exception and were skipped."""


def rehearse(profile: Profile, request: Request, candidates: Sequence[Candidate]) -> Trial:
    """Decide as ``profile`` would. Only ``request`` is modified."""
    trial = Trial()
    filters = [_Watched(inner, trial.narrowings) for inner in profile.filters]
    rehearsal = _Rehearsal(filters, profile.producers, profile.scorers, profile.picker)
    plugins = (*profile.producers, *profile.filters, *(scorer for scorer, _ in profile.scorers), profile.picker)
    with undrawn(plugins):
        try:
            trial.schedule = rehearsal.schedule(request, candidates)
            trial.details = rehearsal.details(request, trial.schedule.candidates)
        except Saturated as refusal:
            trial.refusal = refusal
    trial.failed = tuple(rehearsal.failures)
    return trial


@contextmanager
def undrawn(owners: Iterable[object]) -> Iterator[None]:
    """Restore the random generators of ``owners``, their own or shared, when the context ends."""
    generators = {
        id(value): value
        for owner in owners
        for value in vars(owner).values()
        if isinstance(value, Random) and not isinstance(value, SystemRandom)
    }
    states = [(generator, generator.getstate()) for generator in generators.values()]
    try:
        yield
    finally:
        for generator, state in states:
            generator.setstate(state)


class _Rehearsal(Profile):
    """A profile that counts failures in itself and logs none."""

    @override
    def _failed(self, plugin: Plugin[Any]) -> None:
        self.failures[plugin.name] += 1


class _Watched(Filter[Any]):
    """A filter that wraps another one and records its results."""

    def __init__(self, inner: Filter[Any], narrowings: list[Narrowing]) -> None:
        super().__init__(inner.parameters, inner.name)
        self.type_name = inner.type_name  # type: ignore[misc]  # as the inner class has it
        self._inner = inner
        self._narrowings = narrowings

    @override
    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        narrowing = Narrowing(self.name, self.type_name, len(candidates))
        self._narrowings.append(narrowing)
        kept = self._inner.keep(request, candidates)
        left = {candidate.slot for candidate in kept}
        narrowing.dropped = tuple(candidate for candidate in candidates if candidate.slot not in left)
        return kept
