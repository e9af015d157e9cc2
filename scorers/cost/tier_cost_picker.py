"""Choose by seconds, among those that hold most of the prompt and a few at random."""

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
"""Of each tier, how many of those that hold most are looked at. A guess: what few hold has few holders, and what many
hold makes none of them special."""
MOST = 0.9
"""Who holds that share of what the best one holds is as good."""


class TierCostPickerParameters(PickerParameters, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many are looked at, and named."""

    random_endpoints: Annotated[int, msgspec.Meta(ge=1)] = 2
    """Endpoints drawn for each request beside those that hold most of it. Two are enough to keep loads even, and too
    few for several pickers to agree on the same one; as many as there are looks at all."""
    seconds_per_point: float = 0.0
    """What one point of the scorers' total is worth. 0: it decides between equal times only."""

    def __post_init__(self) -> None:
        check_range("secondsPerPoint", self.seconds_per_point, 0, 3600)


class TierCostPicker(Picker[TierCostPickerParameters]):
    """The least time to a first token among a few: the endpoints that hold most of the prompt in each tier, and
    ``random_endpoints`` drawn by lot. Of equals, the highest total of the scorers, then the fewest requests in flight.

    Its time does not grow with the number of endpoints. Pickers that share endpoints and cannot see each other's picks
    do not all run to the one that is best at that moment.

    Reads: ``Request.pricing``. Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing.
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
        """Without a request nothing is held, and all prompts are alike."""
        return self.pick_for(Request("", "", ""), candidates, scores)

    def pick_for(self, request: Request, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:
        """Positions of the best of those looked at, best first; then others by lot, if more are wanted."""
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
        """The positions that are looked at."""
        count, few = len(candidates), self.parameters.random_endpoints
        if few >= count:
            return set(range(count))
        sample = set(self._random.sample(range(count), few))
        positions: dict[Slot, int] | None = None
        for tokens in tiers:
            for slot in self._most(tokens):
                if slot < count and candidates[slot].slot == slot:  # as it is where no endpoint is missing
                    sample.add(slot)
                    continue
                if positions is None:
                    positions = {candidate.slot: i for i, candidate in enumerate(candidates)}
                if slot in positions:
                    sample.add(positions[slot])
        return sample

    def _most(self, tokens: Mapping[Slot, int]) -> Sequence[Slot]:
        """Those that hold most, a few."""
        if len(tokens) <= HOLDERS:
            return list(tokens)
        enough = MOST * max(tokens.values())
        best = [slot for slot, held in tokens.items() if held >= enough]
        return best if len(best) <= HOLDERS else self._random.sample(best, HOLDERS)
