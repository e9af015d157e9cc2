"""Endpoints, requests and observations for tests of prices."""

from __future__ import annotations

from typing import Any

from scorers.base import CachedPrefix, Candidate, Held, Mode, Observation, Prediction, Request, Slot, Tier
from scorers.cost.constants import Constants, Lane
from scorers.cost.model import CostModel
from scorers.cost.pricing import Pricing

KNOWN = Constants(fixed_s=0.0, token_s=1e-4, pair_s=0.0, decode_s=0.0, cpu=Lane(0.0, 1e-5), stay_s=10.0)


def endpoint(slot: int = 0, **numbers: Any) -> Candidate:
    return Candidate(slot=Slot(slot), address=f"10.0.0.{slot}:8000", **numbers)


def asked(tokens: int = 1000, at: float = 0.0, *, streaming: bool = True, **held: dict[int, int]) -> Request:
    cached = {
        name: CachedPrefix(Tier(name), tokens, {Slot(slot): n for slot, n in by_slot.items()})
        for name, by_slot in held.items()
    }
    return Request("r", "m", "m", prompt_tokens=tokens, received_s=at, cached=cached, streaming=streaming)


def selfish(**settings: Any) -> CostModel:
    return CostModel(KNOWN, others_weight=0.0, **settings)


def price(model: CostModel, candidate: Candidate, request: Request | None = None) -> float:
    return Pricing(model, request or asked()).estimate(candidate).price_s


def send(model: CostModel, candidate: Candidate, request: Request | None = None) -> Candidate:
    """Pick ``candidate``, and return it as the pool then has it."""
    request = request or asked()
    pricing = Pricing(model, request)
    computed = pricing.estimate(candidate).computed_tokens
    pricing.send(candidate)
    return endpoint(
        candidate.slot,
        in_flight=candidate.in_flight + 1,
        in_flight_tokens=candidate.in_flight_tokens + computed,
    )


def observation(candidate: Candidate, ttft_s: float | None, tokens: int = 1000, **seen: Any) -> Observation:
    prediction = Prediction(candidate, (Held(Tier.GPU, 0, Mode.APPROXIMATE),), tokens)
    return Observation(prediction, **{"status": 200, "streaming": True, "ttft_s": ttft_s, **seen})


def answered(model: CostModel, until: int = 50) -> None:
    """Send ``until`` streamed requests, whose responses begin in time."""
    for n in range(until):
        one = endpoint(1)
        send(model, one, asked(at=float(n)))
        model.observed(observation(one, 0.1))
