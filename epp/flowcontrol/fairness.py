"""Which flow of a band has its turn. A flow is one fairness id, unless the policy knows no flows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Annotated, Literal, TypeVar

import msgspec

from epp.decision import Usage
from epp.flowcontrol.queue import FlowQueue
from scorers.base import NoParameters, Plugin, Request

COMPLETION_COST = 2.0
"""Of a generated token, in prompt tokens. Source: the Go picker's."""
MAX_PROGRAMS = 10_000
"""Whose service is remembered; beyond it, the one heard of longest ago is forgotten. A guess."""

Share = Annotated[float, msgspec.Meta(ge=0.0)]

P = TypeVar("P", bound=msgspec.Struct)


class FairnessPolicy(Plugin[P], ABC):
    """Keeps nothing of the queues, so that another policy can take them over."""

    def flow(self, request: Request) -> str:
        """Which queue ``request`` belongs to."""
        return request.fairness_id

    @abstractmethod
    def choose(self, flows: OrderedDict[str, FlowQueue], now: float) -> str:
        """The flow whose turn it is: one of ``flows`` (none is empty, at least one), least recently served first."""

    def served(self, request: Request, now: float) -> None:
        """``request`` goes on."""

    def completed(self, fairness_id: str, usage: Usage, now: float) -> None:
        """What a request of that flow has used, where it was observed."""


class GlobalStrict(FairnessPolicy[NoParameters]):
    """Knows no flows: the band is one queue in the ordering policy's order."""

    type_name = "global-strict-fairness-policy"

    def flow(self, request: Request) -> str:  # noqa: ARG002
        """The one."""
        return ""

    def choose(self, flows: OrderedDict[str, FlowQueue], now: float) -> str:  # noqa: ARG002
        """The one."""
        return next(iter(flows))


class RoundRobin(FairnessPolicy[NoParameters]):
    """One request of each flow in turn; a flow that comes back after it was empty queues up last."""

    type_name = "round-robin-fairness-policy"

    def choose(self, flows: OrderedDict[str, FlowQueue], now: float) -> str:  # noqa: ARG002
        """The flow whose last turn is longest ago."""
        return next(iter(flows))


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
