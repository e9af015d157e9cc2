"""Endpoints that report their eviction horizons, and a picker that follows them."""

from __future__ import annotations

from math import inf

from scorers.base import Candidate, Mode, Slot, Tier, TierReport
from scorers.prefix.cache import PrefixCache
from scorers.prefix.producer import ApproxPrefixProducer
from tests.scorers.prefix.test_prefix_cache import BLOCK, producer, request

A, B = Slot(0), Slot(1)


def reporting(slot: Slot = A, *, fresh: bool = True, **tiers: TierReport) -> Candidate:
    reports = {Tier(name): report for name, report in tiers.items()}
    return Candidate(slot, f"10.0.0.{slot}:8000", fresh=fresh, tiers=reports)


def report(
    horizon_s: float | None = -inf,
    capacity: int = 1000,
    chunk: int = 1,
    store_after: int = 1,
    left: int | None = None,
) -> TierReport:
    """Return a tier's report. Units: blocks of the index."""
    tokens = None if left is None else left * BLOCK
    return TierReport(capacity * BLOCK, None, horizon_s, store_after, False, chunk * BLOCK, horizon_tokens=tokens)


class Picker:
    """A prefix cache, and one or two endpoints that report their horizons."""

    def __init__(self, *producers: ApproxPrefixProducer, candidate: Candidate | None = None) -> None:
        self.producers = producers or (producer("gpu"), producer("cpu"))
        self.cache = PrefixCache(self.producers, block_tokens=BLOCK)
        self.candidate = candidate or reporting(gpu=report(), cpu=report())
        self.cache.endpoint_added(self.candidate)
        self.picks = 0

    def begin(self, prompt: str, now: float) -> int:
        self.picks += 1
        asked = request(prompt)
        asked.pick_id, asked.picked_s = self.picks, now
        for each in self.producers:
            each.produce(asked, [self.candidate])
        for each in self.producers:
            each.picked(asked, self.candidate)
        self.cache.index.check_integrity()
        return self.picks

    def end(self, pick_id: int, now: float) -> None:
        self.cache.ended(pick_id, now)
        self.cache.index.check_integrity()

    def serve(self, prompt: str, now: float) -> None:
        self.end(self.begin(prompt, now), now)

    def report(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.cache.engine_reported(candidate)
        self.cache.index.check_integrity()

    def held(self, prompt: str, name: str = "gpu", slot: Slot = A) -> int:
        """Return how many blocks of ``prompt`` the cache takes ``slot`` to hold."""
        asked = request(prompt)
        for each in self.producers:
            each.produce(asked, [self.candidate])
        return asked.cached[name].tokens.get(slot, 0) // BLOCK

    def mode(self, name: str = "gpu") -> Mode:
        asked = request("a")
        for each in self.producers:
            each.produce(asked, [self.candidate])
        mode = asked.cached[name].modes.get(A, Mode.APPROXIMATE)
        assert mode is self.cache.mode(A, name)
        return mode
