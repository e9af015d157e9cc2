from __future__ import annotations

from collections import Counter
from random import Random

from scorers.base import Candidate, Slot
from scorers.pickers import MaxScorePicker, PickerParameters, RandomPicker, WeightedRandomPicker


def in_flight(*counts: int) -> list[Candidate]:
    return [Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", in_flight=n) for i, n in enumerate(counts)]


def test_the_highest_score_is_picked_however_busy_it_is() -> None:
    assert MaxScorePicker().pick(in_flight(0, 50, 0), [1.0, 1.1, 0.5]) == [1]


def test_of_equal_scores_the_one_with_the_fewest_in_flight_is_picked() -> None:
    assert MaxScorePicker().pick(in_flight(3, 1, 2), [1.0, 1.0, 1.0]) == [1]


def test_of_wholly_equal_candidates_each_gets_its_share() -> None:
    picker = MaxScorePicker(random=Random(1))
    picks = Counter(picker.pick(in_flight(0, 0, 0), [1.0, 1.0, 1.0])[0] for _ in range(600))
    assert all(150 < picks[i] < 250 for i in range(3))


def test_fallbacks_follow_in_the_order_of_their_scores() -> None:
    picker = MaxScorePicker(PickerParameters(max_num_of_endpoints=3))
    assert picker.pick(in_flight(0, 0, 0, 0), [0.1, 0.9, 0.3, 0.5]) == [1, 3, 2]


def test_equal_fallbacks_are_ordered_by_what_is_in_flight() -> None:
    picker = MaxScorePicker(PickerParameters(max_num_of_endpoints=9))
    assert picker.pick(in_flight(2, 0, 1), [1.0, 1.0, 2.0]) == [2, 1, 0]


def test_the_random_picker_ignores_scores_and_repeats_no_candidate() -> None:
    picker = RandomPicker(PickerParameters(max_num_of_endpoints=2), random=Random(1))
    picks = [picker.pick(in_flight(0, 0, 0), [1.0, 0.0, 0.0]) for _ in range(300)]
    assert {first for first, _ in picks} == {0, 1, 2}
    assert all(first != second for first, second in picks)


def test_weighted_picks_follow_the_scores() -> None:
    picker = WeightedRandomPicker(random=Random(1))
    picks = Counter(picker.pick(in_flight(0, 0, 0), [1.0, 3.0, 0.0])[0] for _ in range(4000))
    assert 900 < picks[0] < 1100
    assert picks[2] == 0


def test_small_scores_keep_their_proportions() -> None:
    picker = WeightedRandomPicker(random=Random(1))
    picks = Counter(picker.pick(in_flight(0, 0), [1e-9, 3e-9])[0] for _ in range(4000))
    assert 900 < picks[0] < 1100


def test_weighted_fallbacks_are_distinct_and_scoreless_endpoints_come_last() -> None:
    picker = WeightedRandomPicker(PickerParameters(max_num_of_endpoints=4), random=Random(1))
    picks = [picker.pick(in_flight(0, 0, 0, 0), [0.0, 0.5, -1.0, 2.0]) for _ in range(300)]
    assert all(sorted(pick) == [0, 1, 2, 3] and set(pick[:2]) == {1, 3} for pick in picks)
    assert {tuple(pick[2:]) for pick in picks} == {(0, 2), (2, 0)}
    firsts = Counter(pick[0] for pick in picks)
    assert 210 < firsts[3] < 270


def test_without_scores_all_candidates_are_equally_likely() -> None:
    picker = WeightedRandomPicker(random=Random(1))
    picks = Counter(picker.pick(in_flight(0, 0, 0), [0.0, -2.0, 0.0])[0] for _ in range(600))
    assert all(150 < picks[i] < 250 for i in range(3))
