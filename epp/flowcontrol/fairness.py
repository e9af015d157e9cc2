"""Which flow of a band has its turn. A flow is one fairness id, unless the policy knows no flows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import TypeVar

import msgspec

from epp.decision import Usage
from epp.flowcontrol.queue import FlowQueue
from scorers.base import NoParameters, Plugin, Request

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
