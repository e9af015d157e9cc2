"""A decision that leaves no trace: the profile's own code on the same plugins, with nothing counted, timed or learned.

What a plugin draws at random is put back, so that a trial picks what the next request like it would be given, and that
request still is. What filters and scorers must not do by their contract (change what they are given, remember a request
that is not picked) they do not do here either.
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
    """What one filter did."""

    name: str
    type_name: str
    seen: int
    """Candidates that it was given."""
    dropped: tuple[Candidate, ...] = ()


@dataclass
class Trial:
    """How a decision went, as far as it went."""

    narrowings: list[Narrowing] = field(default_factory=list)
    schedule: Schedule | None = None
    """None where the filters left nobody."""
    refusal: Saturated | None = None
    details: Mapping[str, Sequence[Detail]] = field(default_factory=dict)
    """What plugins have to say of each candidate that was scored, by plugin name."""
    failed: tuple[str, ...] = ()
    """Plugins that raised, and were skipped."""


def rehearse(profile: Profile, request: Request, candidates: Sequence[Candidate]) -> Trial:
    """Decide as ``profile`` would. Only ``request`` is written to."""
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
    """Put the random numbers back that ``owners`` draw meanwhile from generators of their own or shared."""
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
    """Counts failures for itself, and logs none."""

    @override
    def _failed(self, plugin: Plugin[Any]) -> None:
        self.failures[plugin.name] += 1


class _Watched(Filter[Any]):
    """Another filter, whose verdicts are noted."""

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
