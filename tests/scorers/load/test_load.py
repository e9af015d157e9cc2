"""The scorers that spread load."""

from __future__ import annotations

import pytest

from scorers.base import Candidate, Request, Slot
from scorers.load.kv_utilization import KvUtilizationScorer
from scorers.load.queue import QueueScorer
from scorers.load.running import RunningRequestsScorer

REQUEST = Request(id="r", model="m", target_model="m")


def waiting(*counts: int) -> list[Candidate]:
    return [Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", waiting=n, running=99) for i, n in enumerate(counts)]


def running(*counts: int) -> list[Candidate]:
    return [Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", running=n, waiting=99) for i, n in enumerate(counts)]


def test_the_shortest_queue_scores_1_and_the_longest_0() -> None:
    assert QueueScorer().score(REQUEST, waiting(2, 6, 10)) == [1.0, 0.5, 0.0]


def test_equal_queues_all_score_1() -> None:
    assert QueueScorer().score(REQUEST, waiting(7, 7, 7)) == [1.0, 1.0, 1.0]


def test_a_single_candidate_scores_1() -> None:
    assert QueueScorer().score(REQUEST, waiting(9)) == [1.0]


def test_the_smallest_batch_scores_1_and_the_largest_0() -> None:
    assert RunningRequestsScorer().score(REQUEST, running(0, 3, 4)) == [1.0, 0.25, 0.0]


def test_free_kv_memory_is_the_score() -> None:
    candidates = [
        Candidate(slot=Slot(i), address=f"10.0.0.{i}:1", kv_usage=usage) for i, usage in enumerate((0, 0.25, 1))
    ]
    assert KvUtilizationScorer().score(REQUEST, candidates) == pytest.approx([1.0, 0.75, 0.0])
