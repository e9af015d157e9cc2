from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.base import CachedPrefix, Candidate, Request, Slot, Tier
from scorers.cost.tier_cost import TierCostParameters, TierCostProducer, TierCostScorer
from scorers.cost.tier_cost_picker import TierCostPicker, TierCostPickerParameters


def fleet(count: int, **numbers: Any) -> list[Candidate]:
    return [Candidate(slot=Slot(i), address=f"10.0.{i >> 8}.{i & 255}:8000", **numbers) for i in range(count)]


def asked(tokens: int = 30_256, **held: dict[int, int]) -> Request:
    cached = {
        tier: CachedPrefix(Tier(tier), tokens, {Slot(slot): n for slot, n in by_slot.items()})
        for tier, by_slot in held.items()
    }
    return Request("r", "m", "m", prompt_tokens=tokens, cached=cached)


def priced(request: Request, producer: TierCostProducer | None = None) -> Request:
    (producer or TierCostProducer()).produce(request, [])
    return request


def picker(seed: int = 1, **written: Any) -> TierCostPicker:
    return TierCostPicker(msgspec.convert(written, TierCostPickerParameters), random=Random(seed))


# The scorer


def test_a_hit_on_the_gpu_is_better_than_one_in_cpu_memory_and_both_than_none() -> None:
    gpu, cpu, none = TierCostScorer().score(priced(asked(gpu={0: 30_000}, cpu={0: 30_000, 1: 30_000})), fleet(3))
    assert 1.0 == gpu > cpu > none


def test_twice_the_seconds_are_half_the_score() -> None:
    producer = TierCostProducer(TierCostParameters(prefill_tokens_per_second=1000.0, others_weight=0.0))
    producer.picked(priced(asked(10_000), producer), fleet(1)[0])
    busy = Candidate(slot=Slot(0), address="10.0.0.0:8000", in_flight=1, in_flight_tokens=10_000)
    scores = TierCostScorer().score(priced(asked(10_000), producer), [busy, *fleet(2)[1:]])
    assert scores == [pytest.approx(0.5, abs=0.01), 1.0]


def loaded(slot: int, running: int, usage: float, ahead: int) -> Candidate:
    return Candidate(
        slot=Slot(slot), address=f"10.0.0.{slot}:8000", running=running, kv_usage=usage, block_tokens=16,
        gpu_blocks=10_000, in_flight=bool(ahead), in_flight_tokens=ahead,
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100_000)), min_size=2, max_size=8), st.integers(1, 50_000))
@settings(deadline=None)
def test_with_nothing_cached_anywhere_it_orders_by_load_alone(numbers: list[tuple[int, int]], tokens: int) -> None:
    producer, endpoints = TierCostProducer(), []
    for i, (running, ahead) in enumerate(numbers):
        if ahead:
            producer.picked(priced(asked(ahead), producer), loaded(i, 0, 0.0, 0))
        endpoints.append(loaded(i, running, 0.2, ahead))
    scores = TierCostScorer().score(priced(asked(tokens), producer), endpoints)
    for (running, ahead), score in zip(numbers, scores, strict=True):
        for (others_running, others_ahead), other in zip(numbers, scores, strict=True):
            if running <= others_running and ahead <= others_ahead:
                assert score >= other


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.integers(1, 50), st.integers(1, 100_000))
@settings(deadline=None)
def test_of_endpoints_that_run_as_many_the_one_with_more_free_memory_is_as_good_or_better(
    usages: list[float], running: int, tokens: int
) -> None:
    endpoints = [loaded(i, running, usage, 0) for i, usage in enumerate(usages)]
    scores = TierCostScorer().score(priced(asked(tokens)), endpoints)
    ranked = [score for _, score in sorted(zip(usages, scores, strict=True))]
    assert all(score >= other - 1e-12 for score, other in pairwise(ranked))


def test_equal_loads_have_equal_scores_whatever_the_prompt() -> None:
    for tokens in (1, 100, 100_000):
        assert set(TierCostScorer().score(priced(asked(tokens)), fleet(5, running=3, kv_usage=0.3))) == {1.0}


def test_it_can_stand_beside_other_scorers_without_a_producer() -> None:
    assert TierCostScorer().score(asked(gpu={1: 30_000}), fleet(2)) == [pytest.approx(0.05, abs=0.05), 1.0]


# The producer


def test_a_pick_counts_for_the_next_request_at_once() -> None:
    producer, endpoints = TierCostProducer(), fleet(2)
    request = priced(asked(), producer)
    producer.picked(request, endpoints[0])
    busy = [Candidate(slot=Slot(0), address="10.0.0.0:8000", in_flight=1, in_flight_tokens=30_256), endpoints[1]]
    scores = TierCostScorer().score(priced(asked(), producer), busy)
    assert scores[0] < scores[1] == 1.0


def test_a_pick_is_counted_once() -> None:
    producer, endpoints = TierCostProducer(), fleet(1)
    request = priced(asked(), producer)
    producer.picked(request, endpoints[0])
    before = producer.model.current(endpoints[0]).queues.gpu_until
    producer.picked(request, endpoints[0])
    assert producer.model.current(endpoints[0]).queues.gpu_until == before


def test_what_is_written_is_where_it_starts() -> None:
    written = TierCostParameters(
        prefill_tokens_per_second=10_000, cpu_load_tokens_per_second=400_000, storage_load_tokens_per_second=5_000
    )
    constants = TierCostProducer(written).model.start
    assert (constants.token_s, constants.cpu.token_s, constants.storage.token_s) == pytest.approx((1e-4, 2.5e-6, 2e-4))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"model": "Qwen/Qwen3-32B"}, "model and gpu go together"),
        ({"prefillTokensPerSecond": 0}, "prefillTokensPerSecond is 0"),
        ({"othersWeight": -1}, "othersWeight is -1"),
        ({"gpusPerEndpoint": 0}, "gpusPerEndpoint is 0"),
    ],
)
def test_impossible_parameters_are_refused_by_their_key(written: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(written, TierCostParameters)


def test_a_sentence_has_the_tokens_and_the_seconds_of_each_part() -> None:
    producer = TierCostProducer(
        TierCostParameters(prefill_tokens_per_second=20_000, cpu_load_tokens_per_second=150_000)
    )
    (detail,) = producer.details(priced(asked(cpu={0: 29_952}), producer), fleet(1))
    assert detail.text == (
        "10.0.0.0:8000: holds 29,952 of 30,256 tokens in CPU memory; first token in 0.255 s: 0.202 s load + 0.034 s "
        "prefill + 0.020 s fixed; delays others by 0.034 s"
    )
    assert detail.numbers["cpu_tokens"] == 29_952
    assert detail.numbers["total_s"] == pytest.approx(0.255, abs=0.001)


def test_a_sentence_for_a_busy_endpoint_that_holds_nothing() -> None:
    producer = TierCostProducer()
    producer.picked(priced(asked(8_000), producer), fleet(1)[0])
    busy = Candidate(slot=Slot(0), address="10.0.0.0:8000", in_flight=1, in_flight_tokens=8_000, running=2)
    (detail,) = producer.details(priced(asked(4_000), producer), [busy])
    assert detail.text.startswith(
        "10.0.0.0:8000: holds none of 4,000 tokens; first token in 0.702 s: 0.464 s queue + 0.216 s prefill"
    )
    assert detail.text.endswith("; delays others by 0.432 s")


def test_its_state_has_the_constants_and_nothing_of_any_request() -> None:
    producer = TierCostProducer()
    producer.picked(priced(asked(), producer), fleet(1)[0])
    state = msgspec.to_builtins(producer.state())
    assert state["kinds"][""]["constants"]["prefill_seconds_per_token"] == 50e-6
    assert state["different_endpoints"] == []


# The picker


def test_the_holder_is_picked_however_many_others_there_are() -> None:
    for seed in range(20):
        assert picker(seed).pick_for(priced(asked(cpu={700: 30_000})), fleet(1000), [0.0] * 1000) == [700]


def test_a_holder_that_is_overrun_loses_against_one_drawn_by_lot() -> None:
    producer, endpoints = TierCostProducer(), fleet(100)
    for _ in range(30):
        producer.picked(priced(asked(), producer), endpoints[7])
    endpoints[7] = Candidate(slot=Slot(7), address="10.0.0.7:8000", in_flight=30, in_flight_tokens=900_000)
    assert picker().pick_for(priced(asked(gpu={7: 30_000}), producer), endpoints, [0.0] * 100) != [7]


def test_cold_requests_go_to_the_better_of_two_drawn_by_lot() -> None:
    endpoints = [Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", running=i, in_flight=i) for i in range(10)]
    chosen = picker()
    picks = Counter(chosen.pick_for(priced(asked()), endpoints, [0.0] * 10)[0] for _ in range(2000))
    assert picks[9] == 0, "the worst of all is never the better of two"
    assert picks[0] == pytest.approx(400, abs=80), "the best is, whenever it is drawn"
    assert len(picks) == 9


def test_pickers_that_see_the_same_do_not_all_choose_the_same() -> None:
    endpoints = fleet(50)
    picks = Counter(picker(seed).pick_for(priced(asked()), endpoints, [0.0] * 50)[0] for seed in range(100))
    assert max(picks.values()) < 15


def test_the_same_lots_make_the_same_choices() -> None:
    one, other = picker(5, maxNumOfEndpoints=3), picker(5, maxNumOfEndpoints=3)
    endpoints = fleet(20)
    for _ in range(50):
        assert one.pick_for(priced(asked()), endpoints, [0.0] * 20) == other.pick_for(
            priced(asked()), endpoints, [0.0] * 20
        )


def test_with_as_many_lots_as_endpoints_it_is_the_best_of_all() -> None:
    endpoints = [Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", running=9 - i) for i in range(10)]
    assert picker(randomEndpoints=10, maxNumOfEndpoints=10).pick_for(priced(asked()), endpoints, [0.0] * 10) == [
        9, 8, 7, 6, 5, 4, 3, 2, 1, 0,
    ]  # fmt: skip


def test_totals_settle_ties_and_count_where_a_point_is_worth_something() -> None:
    endpoints = fleet(4)
    assert picker(randomEndpoints=4).pick_for(priced(asked()), endpoints, [0.0, 1.0, 0.0, 0.5]) == [1]
    held = asked(gpu={0: 30_000})
    assert picker(randomEndpoints=4).pick_for(priced(held), endpoints, [0.0, 1.0, 0.0, 0.5]) == [0]
    assert picker(randomEndpoints=4, secondsPerPoint=60).pick_for(priced(held), endpoints, [0.0, 1.0, 0.0, 0.5]) == [1]


def test_slots_need_not_be_positions() -> None:
    endpoints = fleet(30)[20:]
    assert picker().pick_for(priced(asked(cpu={25: 30_000, 3: 30_000})), endpoints, [0.0] * 10) == [5]


def test_of_many_holders_a_few_are_looked_at() -> None:
    endpoints = fleet(1000)
    all_hold = asked(gpu=dict.fromkeys(range(1000), 30_000))
    picks = Counter(picker(seed).pick_for(priced(all_hold), endpoints, [0.0] * 1000)[0] for seed in range(50))
    assert len(picks) > 40
