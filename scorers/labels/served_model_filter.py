"""Send a request where its model, or its adapter, is served."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from typing_extensions import override

from scorers.base import Candidate, Filter, Request
from scorers.labels.served_models import ServedModels


class ServedModelParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Whether the filter is active, and how adapters are loaded."""

    enabled: bool = True
    """False switches off the filter that ``tierwise standalone`` adds by default."""
    adapters_on_demand: bool = False
    """Whether every endpoint that can hold LoRA adapters loads any requested adapter, so that a listed adapter may also
    go to endpoints that do not list it yet."""


class ServedModelFilter(Filter[ServedModelParameters]):
    """Keep the endpoints whose engines report that they serve the request's model, and those that have not reported.

    If none is left, no endpoint serves the model, which the picker answers with 404 before it schedules.

    Reads: Request.target_model; ``served``, which the picker fills in. One lookup per model, not per endpoint.
    """

    type_name = "served-model-filter"
    Parameters = ServedModelParameters

    def __init__(self, parameters: ServedModelParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.served = ServedModels()
        """The models that each endpoint reports; the picker's own table, once the picker uses this plugin."""

    def serving(self, model: str) -> frozenset[int] | None:
        """Return the slots of the endpoints that may serve ``model``; None for all."""
        if not self.parameters.enabled:
            return None
        return self.served.serving(model, adapters_on_demand=self.parameters.adapters_on_demand)

    @override
    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        serving = self.serving(request.target_model)
        return candidates if serving is None else [c for c in candidates if c.slot in serving]
