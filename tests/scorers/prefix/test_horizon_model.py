"""Compare what horizon mode derives from an engine's eviction horizon with what the engine really holds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scorers.prefix.lru_engine import LruEngine, blocks_of
from tests.scorers.prefix.reporting import Picker, report, reporting

PROMPTS = st.lists(st.sampled_from("ab"), min_size=1, max_size=5).map("".join)
STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "begin", "end", "end", "report"]), PROMPTS, st.integers(0, 5), st.floats(0, 1)),
    max_size=60,
)


class Both:
    """An engine, and a picker's estimate of it. The picker's clock is late by up to ``late_s``."""

    def __init__(self, gpu: int, cpu: int, late_s: float, *, reports_rest: bool) -> None:
        self.engine, self.picker = LruEngine(gpu, cpu), Picker(candidate=reporting(gpu=report(), cpu=report()))
        self.late_s, self.reports_rest = late_s, reports_rest
        self.now = 0.0
        self.picks: dict[int, int] = {}
        self.sent: set[str] = set()

    def step(self, kind: str, prompt: str, number: int, late: float) -> None:
        self.now += 1.0
        ours = self.now + late * self.late_s
        if kind == "begin":
            if self.engine.begin(len(self.sent) + int(self.now), prompt, self.now):
                self.picks[len(self.sent) + int(self.now)] = self.picker.begin(prompt, ours)
                self.sent.add(prompt)
        elif kind == "end" and self.picks:
            request_id = list(self.picks)[number % len(self.picks)]
            self.engine.end(request_id, self.now)
            self.picker.end(self.picks.pop(request_id), ours)
        elif kind == "report":
            self.report()

    def report(self) -> None:
        gpu, cpu = self.engine.gpu, self.engine.cpu
        left = [tier.at_horizon if self.reports_rest else None for tier in (gpu, cpu)]
        self.picker.report(reporting(gpu=report(gpu.horizon_s, left=left[0]), cpu=report(cpu.horizon_s, left=left[1])))
        for prompt in self.engine.running.values():
            assert self.picker.held(prompt) == len(prompt), "it is in use"

    def compare(self) -> None:
        """Check, after all requests, that only blocks last used at a horizon or just before it are misjudged."""
        while self.picks:
            self.step("end", "", 0, 1.0)
        self.report()
        for tier, name in ((self.engine.gpu, "gpu"), (self.engine.cpu, "cpu")):
            for prompt in self.sent:
                estimated, blocks = self.picker.held(prompt, name), blocks_of(prompt)
                for block in blocks[min(estimated, tier.holds(prompt)) : max(estimated, tier.holds(prompt))]:
                    assert self.late_s or not self.reports_rest, "nothing is misjudged"
                    assert tier.horizon_s - self.late_s <= tier.last_s[block] <= tier.horizon_s


@settings(max_examples=300, deadline=None)
@given(st.integers(5, 12), STEPS)
def test_with_strict_lru_and_exact_clocks_only_blocks_that_are_being_evicted_are_misjudged(
    gpu: int, steps: list[tuple[str, str, int, float]]
) -> None:
    both = Both(gpu, 2 * gpu, late_s=0.0, reports_rest=False)
    for step in steps:
        both.step(*step)
    both.compare()


@settings(max_examples=300, deadline=None)
@given(st.integers(5, 12), STEPS)
def test_nothing_is_misjudged_if_the_engine_reports_what_is_left_at_the_horizon(
    gpu: int, steps: list[tuple[str, str, int, float]]
) -> None:
    both = Both(gpu, 2 * gpu, late_s=0.0, reports_rest=True)
    for step in steps:
        both.step(*step)
    both.compare()


@settings(max_examples=300, deadline=None)
@given(st.integers(5, 12), STEPS, st.floats(0.1, 20))
def test_with_clocks_that_differ_only_uses_within_that_difference_of_the_horizon_are_misjudged(
    gpu: int, steps: list[tuple[str, str, int, float]], late_s: float
) -> None:
    both = Both(gpu, 2 * gpu, late_s, reports_rest=False)
    for step in steps:
        both.step(*step)
    both.compare()
