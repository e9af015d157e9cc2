"""How well horizon mode estimates a tier that kvengine evicts by ARC, whose order is not that of last use."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvengine.index import ChunkIndex, ChunkKey
from kvengine.policies.arc import Arc
from scorers.base import Slot
from tests.scorers.prefix.lru_engine import blocks_of
from tests.scorers.prefix.reporting import Picker, report, reporting
from tests.scorers.prefix.test_prefix_cache import BLOCK

PROMPTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map("".join)


class ArcEngine:
    """A CPU tier of chunks of one block, and the picker that sends all requests there."""

    def __init__(self, slots: int, *, reports_rest: bool) -> None:
        self.now = 0.0
        self.index = ChunkIndex(slots, Arc(), clock=lambda: self.now)
        self.picker = Picker(candidate=reporting(gpu=report(), cpu=report()))
        self.reports_rest = reports_rest
        self.sent: set[str] = set()

    def serve(self, prompt: str) -> None:
        self.now += 1.0
        keys = self.keys(prompt)
        for key in keys:  # a stored chunk stays while it is in use, even behind a gap
            if key in self.index:
                self.index.pin([key])
            else:
                self.index.insert([key])
                self.index.commit([key])
        self.index.unpin(keys[::-1])
        self.picker.serve(prompt, self.now)
        self.sent.add(prompt)
        self.report()

    def report(self) -> None:
        left = self.index.at_horizon if self.reports_rest else None
        self.picker.report(reporting(gpu=report(), cpu=report(self.index.horizon_s or -inf, left=left)))

    def held(self, prompt: str) -> int:
        return self.index.match(self.keys(prompt))

    def keys(self, prompt: str) -> list[ChunkKey]:
        return [ChunkKey(block.encode()) for block in blocks_of(prompt)]


@pytest.mark.parametrize("reports_rest", [False, True])
@settings(max_examples=400, deadline=None)
@given(slots=st.integers(5, 12), prompts=st.lists(PROMPTS, max_size=40))
def test_an_arc_tier_is_never_overestimated_and_underestimated_within_the_bound(
    slots: int, reports_rest: bool, prompts: list[str]
) -> None:
    engine = ArcEngine(slots, reports_rest=reports_rest)
    for prompt in prompts:
        engine.serve(prompt)
        unknown = engine.index.resident - engine.picker.cache.used_tokens(Slot(0), "cpu") // BLOCK
        for sent in engine.sent:
            estimated, held = engine.picker.held(sent, "cpu"), engine.held(sent)
            assert estimated <= held, sent
            assert held - estimated <= unknown, sent
