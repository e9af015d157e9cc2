"""The policies that choose which flow of a band is next. A flow is one fairness id, unless a policy has no flows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Annotated, Literal, TypeVar

import msgspec

from epp.decision import Usage
from epp.flowcontrol.queue import FlowQueue
from scorers.base import NoParameters, Plugin, Request

COMPLETION_COST = 2.0
"""Cost of a generated token, in prompt tokens. Source: the Go picker's."""
MAX_PROGRAMS = 10_000
"""Maximum number of programs whose service is kept; the least recently active ones are dropped first. A guess."""

Share = Annotated[float, msgspec.Meta(ge=0.0)]

P = TypeVar("P", bound=msgspec.Struct)


class FairnessPolicy(Plugin[P], ABC):
    """Chooses the next flow. It keeps no queue, so that another policy can replace it."""

    def flow(self, request: Request) -> str:
        """Return the flow that ``request`` belongs to."""
        return request.fairness_id

    @abstractmethod
    def choose(self, flows: OrderedDict[str, FlowQueue], now: float) -> str:
        """Return the next flow out of ``flows``: at least one, none empty, the least recently served first."""

    def served(self, request: Request, now: float) -> None:
        """Note that ``request`` leaves the queue, or did not have to wait."""

    def completed(self, fairness_id: str, usage: Usage, now: float) -> None:
        """Note the usage of a request of the flow ``fairness_id``, if it was observed."""


class GlobalStrict(FairnessPolicy[NoParameters]):
    """Has no flows: the band is one queue in the ordering policy's order."""

    type_name = "global-strict-fairness-policy"

    def flow(self, request: Request) -> str:  # noqa: ARG002
        """Return the name of the only flow."""
        return ""

    def choose(self, flows: OrderedDict[str, FlowQueue], now: float) -> str:  # noqa: ARG002
        """Return the only flow."""
        return next(iter(flows))


class RoundRobin(FairnessPolicy[NoParameters]):
    """Takes one request of each flow in turn; a flow that was empty in the meantime comes last."""

    type_name = "round-robin-fairness-policy"

    def choose(self, flows: OrderedDict[str, FlowQueue], now: float) -> str:  # noqa: ARG002
        """Return the least recently served flow."""
        return next(iter(flows))


class ProgramAwareParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The weights of attained service and of waiting time."""

    strategy: Literal["las"] = "las"
    las_weight_service: Share = 0.8
    las_weight_head_wait: Share = 0.2
    las_half_life_seconds: Annotated[float, msgspec.Meta(gt=0.0)] = 60.0


class ProgramAware(FairnessPolicy[ProgramAwareParameters]):
    """Chooses by least attained service: the program with the least recent usage goes first, and long waits catch up.

    score = w_s × (1 − service, scaled over the flows) + w_w × (wait of the head, scaled likewise)

    Service is prompt tokens when a request leaves the queue, and twice its generated tokens once they are known. It
    decays by half every half-life, busy or not. O(queued flows).
    """

    type_name = "program-aware-fairness"
    Parameters = ProgramAwareParameters

    def __init__(self, parameters: ProgramAwareParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._service: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and as of when

    def service(self, flow: str, now: float) -> float:
        """Return the decayed usage of ``flow`` at ``now``. Units: prompt tokens."""
        tokens, then = self._service.get(flow, (0.0, now))
        return float(tokens * 0.5 ** (max(0.0, now - then) / self.parameters.las_half_life_seconds))

    def choose(self, flows: OrderedDict[str, FlowQueue], now: float) -> str:
        """Return the flow with the highest score; ties go to the least recently served."""
        if len(flows) == 1:
            return next(iter(flows))
        names = list(flows)
        used = scaled([self.service(name, now) for name in names])
        waits = scaled([now - queue.head().enqueued_s for queue in flows.values()])
        weight, wait_weight = self.parameters.las_weight_service, self.parameters.las_weight_head_wait
        scores = [weight * (1.0 - u) + wait_weight * w for u, w in zip(used, waits, strict=True)]
        return names[scores.index(max(scores))]

    def served(self, request: Request, now: float) -> None:
        """Charge the prompt's tokens to its program."""
        self._charge(request.fairness_id, request.prompt_tokens, now)

    def completed(self, fairness_id: str, usage: Usage, now: float) -> None:
        """Charge the generated tokens to the program."""
        self._charge(fairness_id, COMPLETION_COST * usage.completion_tokens, now)

    def _charge(self, flow: str, tokens: float, now: float) -> None:
        self._service[flow] = (self.service(flow, now) + tokens, now)
        self._service.move_to_end(flow)
        if len(self._service) > MAX_PROGRAMS:
            self._service.popitem(last=False)


def scaled(values: list[float]) -> list[float]:
    """Return ``values`` scaled from 0 for the smallest to 1 for the largest; all 0.5 if they are equal."""
    least, most = min(values), max(values)
    if least == most:
        return [0.5] * len(values)
    return [(value - least) / (most - least) for value in values]
