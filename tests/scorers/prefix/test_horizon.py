"""Compare what horizon mode derives from an engine's eviction horizon with what the engine really holds."""

from __future__ import annotations

import logging
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.base import Candidate, Mode, Slot, Tier, TierReport
from scorers.prefix.cache import PrefixCache
from scorers.prefix.producer import ApproxPrefixProducer
from tests.scorers.prefix.lru_engine import LruEngine, blocks_of
from tests.scorers.prefix.test_prefix_cache import BLOCK, producer, request

A, B = Slot(0), Slot(1)
GPU, CPU = Tier.GPU, Tier.CPU


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


def test_what_was_used_after_the_horizon_is_there_and_what_was_used_before_is_gone() -> None:
    picker = Picker()
    picker.serve("abc", 1.0)
    picker.serve("xyz", 2.0)
    picker.report(reporting(gpu=report(1.5), cpu=report(0.5)))
    assert (picker.held("abc"), picker.held("xyz")) == (0, 3)
    assert (picker.held("abc", "cpu"), picker.held("xyz", "cpu")) == (3, 3)
    picker.report(reporting(gpu=report(2.0), cpu=report(1.5)))
    assert (picker.held("xyz"), picker.held("abc", "cpu"), picker.held("xyz", "cpu")) == (0, 0, 3)


def test_a_beginning_that_was_used_again_outlives_what_came_after_it() -> None:
    picker = Picker()
    picker.serve("abcd", 1.0)
    picker.serve("abxy", 2.0)
    picker.report(reporting(gpu=report(1.0), cpu=report()))
    assert (picker.held("abcd"), picker.held("abxy")) == (2, 4)


def test_of_what_is_being_evicted_the_beginning_is_left() -> None:
    picker = Picker()
    picker.serve("abcdef", 1.0)
    picker.serve("xyz", 2.0)
    picker.report(reporting(gpu=report(0.95, left=2), cpu=report()))
    assert (picker.held("abcdef"), picker.held("xyz")) == (2, 3), "its end arrived 0.05 s after it ended in the engine"
    picker.report(reporting(gpu=report(1.5, left=2), cpu=report()))
    assert (picker.held("abcdef"), picker.held("xyz")) == (0, 3), "another prompt is being evicted"
    picker.report(reporting(gpu=report(2.0, left=0), cpu=report()))
    assert picker.held("xyz") == 0


def test_a_prompt_is_in_use_until_its_request_ends() -> None:
    picker = Picker()
    running = picker.begin("abc", 1.0)
    picker.serve("xyz", 2.0)
    picker.report(reporting(gpu=report(5.0), cpu=report()))
    assert (picker.held("abc"), picker.held("xyz")) == (3, 0)
    picker.end(running, 10.0)
    picker.report(reporting(gpu=report(9.0), cpu=report()))
    assert picker.held("abc") == 3
    picker.report(reporting(gpu=report(10.0), cpu=report()))
    assert picker.held("abc") == 0


def test_a_copy_in_another_tier_may_go_while_its_request_runs_and_does_not_come_back_by_its_end() -> None:
    picker = Picker()
    running = picker.begin("abc", 1.0)
    picker.serve("ab", 2.0)
    picker.report(reporting(gpu=report(1.5), cpu=report(1.5)))
    assert (picker.held("abc"), picker.held("abc", "cpu")) == (3, 2)
    picker.end(running, 4.0)
    assert (picker.held("abc"), picker.held("abc", "cpu")) == (3, 2)
    picker.report(reporting(gpu=report(1.5), cpu=report(3.0)))
    assert (picker.held("abc"), picker.held("abc", "cpu")) == (3, 2), "used until 4.0"


def test_what_was_sent_behind_a_prompt_is_not_used_by_that_prompts_end() -> None:
    picker = Picker()
    first = picker.begin("ab", 1.0)
    second = picker.begin("abcd", 2.0)
    picker.end(second, 3.0)
    picker.end(first, 5.0)
    picker.report(reporting(gpu=report(4.0), cpu=report()))
    assert picker.held("abcd") == 2


def test_an_engine_that_began_anew_holds_what_it_was_sent_since() -> None:
    picker = Picker()
    picker.serve("abc", 1.0)
    picker.report(reporting(gpu=report(1.2), cpu=report(1.2)))
    picker.serve("xyz", 1.5)
    picker.report(reporting(gpu=report(1.2), cpu=report(1.2)))
    assert [picker.held(prompt, tier) for prompt in ("abc", "xyz") for tier in ("gpu", "cpu")] == [0, 0, 3, 3]


def test_modes_follow_the_reports_tier_by_tier_and_go_back_when_they_stop() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(None)))
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.HORIZON, Mode.APPROXIMATE)
    picker.report(reporting(gpu=report(), cpu=report()))
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.HORIZON, Mode.HORIZON)
    assert picker.cache.endpoints_by_mode("cpu") == {Mode.PRECISE: 0, Mode.HORIZON: 1, Mode.APPROXIMATE: 0}
    picker.report(reporting(gpu=report(), cpu=report(), fresh=False))
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.APPROXIMATE, Mode.APPROXIMATE)
    picker.report(reporting(gpu=report()))
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.HORIZON, Mode.APPROXIMATE)
    picker.cache.endpoint_removed(A, "")
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.APPROXIMATE, Mode.APPROXIMATE)


def test_the_modes_in_a_request_do_not_change_when_an_engine_reports() -> None:
    picker = Picker()
    asked = request("a")
    picker.producers[0].produce(asked, [picker.candidate])
    picker.report(reporting())
    assert asked.cached["gpu"].modes == {A: Mode.HORIZON}


def test_a_parameter_forces_the_approximate_mode() -> None:
    picker = Picker(producer("gpu", followHorizon=False), producer("cpu", followHorizon=False))
    picker.serve("abc", 1.0)
    picker.report(reporting(gpu=report(5.0), cpu=report(5.0)))
    assert (picker.held("abc"), picker.mode()) == (3, Mode.APPROXIMATE)


def test_in_approximate_mode_a_tier_holds_its_reported_capacity() -> None:
    picker = Picker(candidate=reporting(gpu=report(None, capacity=2), cpu=report(None, capacity=4)))
    picker.serve("abcdef", 1.0)
    assert (picker.held("abcdef"), picker.held("abcdef", "cpu")) == (2, 4)


def test_with_a_horizon_the_capacity_only_bounds_what_is_kept() -> None:
    picker = Picker(candidate=reporting(gpu=report(capacity=2), cpu=report(capacity=2)))
    picker.serve("abcdefghijkl", 1.0)
    assert picker.held("abcdefghijkl") == 8, "our blocks are not the engine's: there is room for four times as many"
    assert picker.cache.capacity_tokens(A, "gpu") == 2 * BLOCK


def test_a_hit_is_a_whole_number_of_chunks_of_each_prompt() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(chunk=3)))
    picker.serve("abcdefgh", 1.0)
    assert [picker.held("abcdefgh"[:n], "cpu") for n in range(1, 9)] == [0, 0, 0, 3, 3, 3, 6, 6], (
        "a prompt's last token is computed, so a chunk that ends with it is no hit"
    )
    assert picker.held("abcdefgh") == 8
    asked = request("abcdefgh", "abcd")
    for each in picker.producers:
        each.produce(asked, [picker.candidate])
    assert asked.cached["cpu"].tokens == {A: (6 + 3) * BLOCK}


def test_what_enters_when_computed_for_the_second_time_does() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(store_after=2)))
    picker.serve("abcd", 1.0)
    assert (picker.held("abcd"), picker.held("abcd", "cpu")) == (4, 0)
    picker.serve("abxy", 2.0)
    assert (picker.held("abcd", "cpu"), picker.held("abxy", "cpu")) == (2, 2)
    running = picker.begin("abcd", 3.0)
    assert picker.held("abcd", "cpu") == 4
    picker.end(running, 3.5)
    assert (picker.held("abcd", "cpu"), picker.held("abxy", "cpu")) == (4, 2), "an end is no second computation"


def test_what_the_gpu_has_lost_meanwhile_is_still_remembered_to_have_been_computed() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(store_after=2)))
    picker.serve("abcd", 1.0)
    picker.report(reporting(gpu=report(1.5), cpu=report(store_after=2)))
    assert picker.held("abcd") == 0
    picker.serve("abcd", 2.0)
    assert picker.held("abcd", "cpu") == 4
    picker.report(reporting(gpu=report(2.5), cpu=report(2.5, store_after=2)))
    picker.serve("abcd", 3.0)
    assert picker.held("abcd", "cpu") == 0, "what was evicted counts anew"


def test_nothing_enters_a_tier_that_stores_nothing() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(store_after=0)))
    picker.serve("abcd", 1.0)
    assert (picker.held("abcd"), picker.held("abcd", "cpu")) == (4, 0)


def test_a_written_capacity_wins_and_one_that_cannot_be_right_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    picker = Picker(producer("gpu"), producer("cpu", lruCapacityPerServer=5, blockSizeTokens=BLOCK))
    for reported in (5, 6, 4, 4, 4):
        picker.report(reporting(gpu=report(), cpu=report(capacity=reported)))
        assert picker.cache.capacity_tokens(A, "cpu") == 5 * BLOCK
        assert picker.cache.doubted("cpu") == (reported < 5)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(
        "cpu: lruCapacityPerServer is 5 blocks (20 tokens), and the cpu tier of 10.0.0.0:8000 holds 16 tokens as"
    )


def test_a_capacity_that_cannot_be_right_is_named_once_however_often_its_engine_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    picker = Picker(producer("gpu"), producer("cpu", lruCapacityPerServer=5, blockSizeTokens=BLOCK))
    for capacity in (4, 6, 3, 4):
        picker.report(reporting(gpu=report(), cpu=report(capacity=capacity)))
        picker.cache.endpoint_added(picker.candidate)
    other = reporting(B, gpu=report(), cpu=report(capacity=4))
    picker.cache.endpoint_added(other)
    assert len(caplog.records) == 1, "nor for every endpoint: the number that was written is one"


def test_a_capacity_that_the_engine_reports_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Picker().serve("abc", 1.0)
    assert not caplog.records


def test_ends_of_unknown_requests_change_nothing() -> None:
    picker = Picker()
    running = picker.begin("abc", 1.0)
    picker.end(running, 2.0)
    generation = picker.cache.index.generation
    picker.end(running, 3.0)
    picker.end(999, 3.0)
    assert picker.cache.index.generation == generation


def test_a_request_that_ends_after_its_endpoint_was_removed_changes_nothing() -> None:
    picker = Picker()
    running = picker.begin("abc", 1.0)
    picker.cache.endpoint_removed(A, "")
    picker.cache.endpoint_added(picker.candidate)
    picker.end(running, 2.0)
    assert picker.held("abc") == 0


@pytest.mark.parametrize("candidate", [reporting(), reporting(gpu=report(), cpu=report())])
def test_nothing_is_kept_of_requests_that_are_over(candidate: Candidate) -> None:
    picker = Picker(candidate=candidate)
    running = picker.begin("abc", 1.0)
    assert len(picker.cache._flights) == 1
    picker.end(running, 2.0)
    picker.cache.unused(picker.begin("abc", 3.0))
    assert len(picker.cache._flights) == 0


APPROXIMATE = reporting(gpu=report(None), cpu=report(None))


@pytest.mark.parametrize("candidate", [APPROXIMATE, reporting(gpu=report(), cpu=report())])
def test_of_a_request_that_failed_its_endpoint_holds_what_it_held_before(candidate: Candidate) -> None:
    picker = Picker(candidate=candidate)
    picker.serve("abcd", 1.0)
    failing = picker.begin("abcxyz", 2.0)
    assert picker.held("abcxyz") == 6
    picker.cache.unused(failing)
    picker.cache.index.check_integrity()
    assert [picker.held(prompt, tier) for prompt in ("abcxyz", "abcd") for tier in ("gpu", "cpu")] == [3, 3, 4, 4]
    longer = picker.begin("abcdef", 3.0)
    picker.cache.unused(longer)
    picker.cache.index.check_integrity()
    assert picker.held("abcdef") == 4


def test_what_another_request_was_sent_meanwhile_is_not_lost_with_a_request_that_failed() -> None:
    picker = Picker()
    failing = picker.begin("abcd", 1.0)
    running = picker.begin("abxy", 2.0)
    picker.cache.unused(failing)
    picker.cache.index.check_integrity()
    assert (picker.held("abcd"), picker.held("abxy")) == (2, 4)
    picker.end(running, 3.0)
    assert picker.held("abxy") == 4


def test_the_same_prompt_of_another_request_is_not_lost_with_a_request_that_failed() -> None:
    picker = Picker()
    failing = picker.begin("abcd", 1.0)
    picker.begin("abcd", 2.0)
    picker.cache.unused(failing)
    assert picker.held("abcd") == 4


@pytest.mark.parametrize("longer", [("abxy",), ("abxy", "abuv")])
def test_what_goes_on_behind_a_request_that_failed_is_not_lost_with_it(longer: tuple[str, ...]) -> None:
    picker = Picker()
    failing = picker.begin("ab", 1.0)
    for prompt in longer:
        picker.begin(prompt, 1.0)  # at the same time, as all uses that are noted together
    picker.cache.unused(failing)
    picker.cache.index.check_integrity()
    assert [picker.held(prompt) for prompt in longer] == [4] * len(longer)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=3), st.booleans())),
    st.booleans(),
)
def test_requests_that_fail_one_after_the_other_change_nothing(
    requests: list[tuple[list[str], bool]], bounded: bool
) -> None:
    shares = {"maxShareByFairnessId": 0.9} if bounded else {}
    picker, sent = Picker(producer("gpu", **shares), producer("cpu", **shares)), set[str]()
    for now, (prompts, fails) in enumerate(requests, 1):
        asked = request(*prompts)
        asked.pick_id, asked.picked_s = now, float(now)
        for each in picker.producers:
            each.produce(asked, [picker.candidate])
        picker.cache.picked(asked, picker.candidate)
        if fails:
            picker.cache.unused(now)
        else:
            picker.cache.ended(now, now + 0.5)
            sent |= {prompt[:n] for prompt in prompts for n in range(len(prompt) + 1)}
        picker.cache.index.check_integrity()
        for prompt in prompts:
            assert picker.held(prompt) == max(n for n in range(len(prompt) + 1) if not n or prompt[:n] in sent)


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
