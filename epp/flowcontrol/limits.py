"""The policies for how full the pool may be before a band's requests have to wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

import msgspec

from scorers.base import NoParameters, Plugin

P = TypeVar("P", bound=msgspec.Struct)
Ceiling = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class UsageLimitPolicy(Plugin[P], ABC):
    """Sets the saturation at which each band stops."""

    @abstractmethod
    def ceilings(self, saturation: float, priorities: Sequence[int]) -> Sequence[float]:
        """Return one ceiling for each of ``priorities``, highest first. A band goes on while ``saturation`` is below
        its ceiling."""


class StaticLimitParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The one ceiling of all bands."""

    threshold: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0


class StaticUsageLimit(UsageLimitPolicy[StaticLimitParameters]):
    """Gives all bands the same ceiling."""

    type_name = "static-usage-limit-policy"
    Parameters = StaticLimitParameters

    def ceilings(self, saturation: float, priorities: Sequence[int]) -> Sequence[float]:  # noqa: ARG002
        """Return the threshold for each band."""
        return [self.parameters.threshold] * len(priorities)


class HoldbackParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The ceilings of the lowest and of the highest band."""

    min_ceiling: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] | None = None
    """Required in a configuration; 0 for a policy that is made without arguments."""
    max_ceiling: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    domain: Literal["rank", "value"] = "rank"
    shape: Literal["linear"] = "linear"


class PriorityHoldback(UsageLimitPolicy[HoldbackParameters]):
    """Gives lower bands lower ceilings, on a line over the bands' ranks or over the values of their priorities."""

    type_name = "priority-holdback-policy"
    Parameters = HoldbackParameters

    def __init__(self, parameters: HoldbackParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        if parameters is not None and parameters.min_ceiling is None:
            raise ValueError("minCeiling is required: the ceiling of the lowest priority, from 0 to below 1")
        if (self.parameters.min_ceiling or 0.0) > self.parameters.max_ceiling:
            raise ValueError(
                f"minCeiling {self.parameters.min_ceiling} is above maxCeiling {self.parameters.max_ceiling}"
            )

    def ceilings(self, saturation: float, priorities: Sequence[int]) -> Sequence[float]:  # noqa: ARG002
        """Return the ceilings on the line; a single band has the highest one."""
        low, high = self.parameters.min_ceiling or 0.0, self.parameters.max_ceiling
        if len(priorities) < 2:
            return [high] * len(priorities)
        if self.parameters.domain == "rank":
            step = (high - low) / (len(priorities) - 1)
            return [high - rank * step for rank in range(len(priorities))]
        most, least = priorities[0], priorities[-1]
        return [low + (priority - least) / (most - least) * (high - low) for priority in priorities]


class SoftReflectiveCeiling(UsageLimitPolicy[NoParameters]):
    """Lets the band of rank i of n go on while saturation is below 1 − i × saturation / (n − 1).

    Above that, the band goes on at every ``round(s / (1 − s))``-th call only.
    """

    type_name = "soft-reflective-ceiling-policy"

    def __init__(self, parameters: NoParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._held_back: list[int] = []  # by rank: calls since the band last went on

    def ceilings(self, saturation: float, priorities: Sequence[int]) -> Sequence[float]:
        """Return 1 for each band that may go on at this call, else 0."""
        count = len(priorities)
        self._held_back = (self._held_back + [0] * count)[:count]
        return [1.0, *(self._ceiling(rank, saturation, count) for rank in range(1, count))][:count]

    def _ceiling(self, rank: int, saturation: float, count: int) -> float:
        if saturation < 1.0 - rank * saturation / (count - 1):
            self._held_back[rank] = 0
            return 1.0
        if saturation >= 1.0:
            return 0.0
        self._held_back[rank] += 1
        if self._held_back[rank] < round(saturation / (1.0 - saturation)):
            return 0.0
        self._held_back[rank] = 0
        return 1.0
