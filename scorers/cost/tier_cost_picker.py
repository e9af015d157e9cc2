"""Choose by seconds, among the endpoints that hold most of the prompt and a few random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated

import msgspec

from scorers.base import Candidate, Picker, Request, Slot
from scorers.cost.model import CostModel
from scorers.cost.tier_cost import pricing_of
from scorers.parameters import check_range
from scorers.pickers import PickerParameters

HOLDERS = 4
"""How many of the endpoints that hold most are considered in each tier. A guess: what few endpoints hold has few
holders, and what many hold makes none of them special."""
MOST = 0.9
"""An endpoint that holds this share of what the best one holds is considered equally good."""


class TierCostPickerParameters(PickerParameters, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many endpoints are considered, and how many are named."""

    random_endpoints: Annotated[int, msgspec.Meta(ge=1)] = 2
    """Number of random endpoints considered for each request, beside those that hold most of it. Two are enough to keep
    loads even, and too few for several pickers to agree on the same one; with as many as there are endpoints, all are
    considered."""
    seconds_per_point: float = 0.0
    """The value of one point of the scorers' total. 0: the total only breaks ties between equal times."""

    def __post_init__(self) -> None:
        check_range("secondsPerPoint", self.seconds_per_point, 0, 3600)


class TierCostPicker(Picker[TierCostPickerParameters]):
    """Pick the least time to first token among a few endpoints.

    Considered are the endpoints that hold most of the prompt in each tier, and ``random_endpoints`` random ones. Ties
    go to the highest total of the scorers, then to the fewest requests in flight.

    The time for a pick does not grow with the number of endpoints. Several pickers that share endpoints and cannot see
    each other's picks do not all choose the endpoint that is best at the moment.

    Reads: ``scorers.cost.pricing.PRICING``.
    Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing.
    """

    type_name = "tier-cost-picker"
    Parameters = TierCostPickerParameters

    def __init__(
        self, parameters: TierCostPickerParameters | None = None, name: str = "", random: Random | None = None
    ) -> None:
        super().__init__(parameters, name)
        self._random = random or Random()
        self._unpriced = CostModel(learns=False)

    def pick(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:
        """Pick as ``pick_for`` does, for an empty request that no endpoint holds any of."""
        return self.pick_for(Request("", "", ""), candidates, scores)

    def pick_for(self, request: Request, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:
        """Return the positions of the best considered candidates, best first, then random others if needed."""
        wanted = min(self.parameters.max_num_of_endpoints, len(candidates))
        pricing = pricing_of(request, self._unpriced)
        looked_at = self._sample(pricing.tiers, candidates)
        point_s, draw = self.parameters.seconds_per_point, self._random.random
        ranked = []
        for i in looked_at:
            candidate, score = candidates[i], scores[i]
            took_s = pricing.estimate(candidate).price_s - point_s * score
            ranked.append((took_s, -score, candidate.in_flight, draw(), i))
        picks = [i for *_, i in sorted(ranked)[:wanted]]
        if len(picks) < wanted:
            left = [i for i in range(len(candidates)) if i not in looked_at]
            picks += self._random.sample(left, wanted - len(picks))
        return picks

    def _sample(self, tiers: Sequence[Mapping[Slot, int]], candidates: Sequence[Candidate]) -> set[int]:
        """Return the positions of the candidates to consider."""
        count, few = len(candidates), self.parameters.random_endpoints
        if few >= count:
            return set(range(count))
        sample = set(self._random.sample(range(count), few))
        positions: dict[Slot, int] | None = None
        for tokens in tiers:
            for slot in self._most(tokens):
                if slot < count and candidates[slot].slot == slot:  # true while no endpoint is missing
                    sample.add(slot)
                    continue
                if positions is None:
                    positions = {candidate.slot: i for i, candidate in enumerate(candidates)}
                if slot in positions:
                    sample.add(positions[slot])
        return sample

    def _most(self, tokens: Mapping[Slot, int]) -> Sequence[Slot]:
        """Return the slots that hold most, at most ``HOLDERS`` of them."""
        if len(tokens) <= HOLDERS:
            return list(tokens)
        enough = MOST * max(tokens.values())
        best = [slot for slot, held in tokens.items() if held >= enough]
        return best if len(best) <= HOLDERS else self._random.sample(best, HOLDERS)
