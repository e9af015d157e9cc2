"""The worked example of docs/cost-model.md, computed."""

from __future__ import annotations

from pathlib import Path

from epp.config.load import load_file
from epp.config.wiring.build import build
from scorers.base import CachedPrefix, Candidate, Request, Slot, Tier
from scorers.cost.tier_cost import TierCostProducer

ROOT = Path(__file__).parents[3]


def asked(tokens: int, **held: dict[int, int]) -> Request:
    cached = {
        tier: CachedPrefix(Tier(tier), tokens, {Slot(slot): n for slot, n in by_slot.items()})
        for tier, by_slot in held.items()
    }
    return Request("r", "m", "m", prompt_tokens=tokens, received_s=100.0, cached=cached)


def test_the_sentences_are_those_of_the_configuration_on_the_page() -> None:
    made = build(load_file(ROOT / "manifests" / "config" / "cost.yaml"))
    producer = made.profile.producers[-1]
    assert isinstance(producer, TierCostProducer)
    seven, eight, nine = (Candidate(slot=Slot(i), address=f"10.0.0.{7 + i}:8000") for i in range(3))
    for candidate, tokens in ((seven, 880), (nine, 20_000), (nine, 20_000), (nine, 20_000)):
        request = asked(tokens)
        producer.produce(request, [])
        producer.picked(request, candidate)
    fleet = [
        Candidate(slot=Slot(0), address=seven.address, running=4, in_flight=5, in_flight_tokens=880),
        eight,
        Candidate(slot=Slot(2), address=nine.address, running=10, in_flight=13, in_flight_tokens=60_000),
    ]
    request = asked(30_256, gpu={2: 29_952}, cpu={0: 29_952, 2: 29_952})
    producer.produce(request, fleet)
    said = "".join(f"{detail.text}.\n" for detail in producer.details(request, fleet))
    assert f"```\n{said}```" in (ROOT / "docs" / "cost-model.md").read_text()
    ((scorer, _),) = made.profile.scorers
    assert scorer.score(request, fleet)[0] == 1.0
