from __future__ import annotations

import pytest

from scorers.affinity.lora import LoraAffinityScorer
from scorers.base import Candidate, LoraState, Request, Slot


@pytest.mark.parametrize(
    ("lora", "score"),
    [
        (LoraState(running=frozenset({"sql"}), max_loras=1), 1.0),
        (LoraState(running=frozenset({"other"}), max_loras=2), 0.8),
        (LoraState(running=frozenset({"other"}), waiting=frozenset({"sql"}), max_loras=3), 0.8),
        (LoraState(running=frozenset({"other"}), waiting=frozenset({"sql"}), max_loras=2), 0.6),
        (LoraState(running=frozenset({"other"}), waiting=frozenset({"third"}), max_loras=2), 0.0),
        (LoraState(), 0.0),
    ],
)
def test_a_loaded_adapter_beats_free_room_beats_a_queued_one(lora: LoraState, score: float) -> None:
    request = Request(id="r", model="sql", target_model="sql")
    assert LoraAffinityScorer().score(request, [Candidate(slot=Slot(0), address="10.0.0.1:8000", lora=lora)]) == [score]


def test_the_adapter_is_the_model_after_a_rewrite() -> None:
    request = Request(id="r", model="alias", target_model="sql")
    loaded = Candidate(slot=Slot(0), address="10.0.0.1:8000", lora=LoraState(running=frozenset({"sql"}), max_loras=1))
    assert LoraAffinityScorer().score(request, [loaded]) == [1.0]
