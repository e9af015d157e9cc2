"""Send a request where its model, or its adapter, is served."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from typing_extensions import override

from scorers.base import Candidate, Filter, Request
from scorers.labels.served_models import ServedModels


class ServedModelParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Whether it filters, and what is known of adapters."""

    enabled: bool = True
    """False switches off the filter that ``tierwise standalone`` has by itself."""
    adapters_on_demand: bool = False
    """Whether every endpoint with places for LoRA adapters loads whichever is asked for, so that a listed adapter may
    also go to endpoints that do not list it yet."""


class ServedModelFilter(Filter[ServedModelParameters]):
    """Keep the endpoints whose engines say that they serve the request's model, and those that have not said.

    None of them means that nobody serves it, which the picker answers with 404 before it schedules.

    Reads: Request.target_model; ``served``, which the picker fills in. A lookup for each model, not for each endpoint.
    """

    type_name = "served-model-filter"
    Parameters = ServedModelParameters

    def __init__(self, parameters: ServedModelParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.served = ServedModels()
        """What the endpoints say; the picker's own, once it serves by this plugin."""

    def serving(self, model: str) -> frozenset[int] | None:
        """The slots of those that may serve ``model``; None for all."""
        if not self.parameters.enabled:
            return None
        return self.served.serving(model, adapters_on_demand=self.parameters.adapters_on_demand)

    @override
    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        serving = self.serving(request.target_model)
        return candidates if serving is None else [c for c in candidates if c.slot in serving]
