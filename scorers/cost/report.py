"""What a cost model has learned, as plain data."""

from __future__ import annotations

from scorers.cost.constants import Constants
from scorers.cost.model import CostModel

MOST_SHOWN = 100
"""The most endpoints that are shown."""


def state_of(model: CostModel) -> object:
    """Return the model's constants, and the endpoints that differ, for the debug port."""
    different = [
        {
            "endpoint": costs.address,
            "computing": round(costs.computing.factor, 3),
            "loading": round(costs.loading.factor, 3),
        }
        for costs in model.endpoints()
        if costs.differs
    ]
    return {
        "learns": model.learns,
        "answers_seen": model.answers_seen,
        "kinds": {
            name: {
                "constants": named(kind.constants),
                "observations_used": kind.learner.used,
                "observations_refused": kind.learner.refused,
            }
            for name, kind in model.kinds.items()
        },
        "different_endpoints": different[:MOST_SHOWN],
        "total_different_endpoints": len(different),
    }


def named(constants: Constants) -> dict[str, float]:
    """Return the constants by the names that metrics have for them. Units: seconds, per token where the name has it."""
    return {
        "fixed_seconds": constants.fixed_s,
        "prefill_seconds_per_token": constants.token_s,
        "prefill_seconds_per_pair": constants.pair_s,
        "decode_seconds_per_request": constants.decode_s,
        "cpu_load_fixed_seconds": constants.cpu.fixed_s,
        "cpu_load_seconds_per_token": constants.cpu.token_s,
        "storage_load_fixed_seconds": constants.storage.fixed_s,
        "storage_load_seconds_per_token": constants.storage.token_s,
        "stay_seconds": constants.stay_s,
    }
