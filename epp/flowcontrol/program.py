"""Fairness between programs: many requests under one fairness id, of which each uses what it uses."""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated, Literal

import msgspec

from epp.decision import Usage
from epp.flowcontrol.fairness import FairnessPolicy
from epp.flowcontrol.queue import FlowQueue
from scorers.base import Request

COMPLETION_COST = 2.0
"""Of a generated token, in prompt tokens. Source: the Go picker's."""
MAX_PROGRAMS = 10_000
"""Whose service is remembered; beyond it, the one heard of longest ago is forgotten. A guess."""

Share = Annotated[float, msgspec.Meta(ge=0.0)]


class ProgramAwareParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How much service and waiting weigh."""

    strategy: Literal["las"] = "las"
    las_weight_service: Share = 0.8
    las_weight_head_wait: Share = 0.2
    las_half_life_seconds: Annotated[float, msgspec.Meta(gt=0.0)] = 60.0


class ProgramAware(FairnessPolicy[ProgramAwareParameters]):
    """Least attained service: the program that has used least of late goes first, and one that waits long catches up.

    score = w_s × (1 − service, scaled over the flows) + w_w × (wait of the head, scaled likewise)

    Service is prompt tokens when a request goes on, and twice its generated tokens when they are known; it halves every
    half-life, busy or not, so that the past is forgotten at one pace. O(flows that wait).
    """

    type_name = "program-aware-fairness"
    Parameters = ProgramAwareParameters

    def __init__(self, parameters: ProgramAwareParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._service: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and as of when

    def service(self, flow: str, now: float) -> float:
        """What ``flow`` has used, as it counts ``now``. Units: prompt tokens."""
        tokens, then = self._service.get(flow, (0.0, now))
        return float(tokens * 0.5 ** (max(0.0, now - then) / self.parameters.las_half_life_seconds))

    def choose(self, flows: OrderedDict[str, FlowQueue], now: float) -> str:
        """The flow with the highest score; of equals, the one whose last turn is longest ago."""
        if len(flows) == 1:
            return next(iter(flows))
        names = list(flows)
        used = scaled([self.service(name, now) for name in names])
        waits = scaled([now - queue.head().enqueued_s for queue in flows.values()])
        weight, wait_weight = self.parameters.las_weight_service, self.parameters.las_weight_head_wait
        scores = [weight * (1.0 - u) + wait_weight * w for u, w in zip(used, waits, strict=True)]
        return names[scores.index(max(scores))]

    def served(self, request: Request, now: float) -> None:
        """Charge the prompt."""
        self._charge(request.fairness_id, request.prompt_tokens, now)

    def completed(self, fairness_id: str, usage: Usage, now: float) -> None:
        """Charge what was generated."""
        self._charge(fairness_id, COMPLETION_COST * usage.completion_tokens, now)

    def _charge(self, flow: str, tokens: float, now: float) -> None:
        self._service[flow] = (self.service(flow, now) + tokens, now)
        self._service.move_to_end(flow)
        if len(self._service) > MAX_PROGRAMS:
            self._service.popitem(last=False)


def scaled(values: list[float]) -> list[float]:
    """``values`` from 0 for the least to 1 for the most; 0.5 for all when they are equal."""
    least, most = min(values), max(values)
    if least == most:
        return [0.5] * len(values)
    return [(value - least) / (most - least) for value in values]
