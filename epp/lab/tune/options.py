"""The options of ``tierwise tune``, as typed values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Objective(Enum):
    """The figure to improve."""

    MEAN_TTFT = "mean-ttft"
    P90_TTFT = "p90-ttft"
    MEAN_E2E = "mean-e2e"
    P90_E2E = "p90-e2e"
    THROUGHPUT = "throughput"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """The options of one search for weights."""

    workload: str = "high-cache"
    """A name or a file."""
    engine: str | None = None
    """None is the engine of the workload's published tables."""
    endpoints: int | None = None
    """None is the number of endpoints in the engine's tables."""
    written_for: int | None = None
    """Endpoints that the load of a file is for; None runs a file as it is written."""
    gpu_tokens: int | None = None
    cpu_tokens: int | None = None
    """Capacity of a tier of each engine; None keeps the engine's own."""
    objective: Objective = Objective.MEAN_TTFT
    budget_s: float = 300.0
    candidates: int | None = None
    """How many are tried, whatever time it takes; None tries as many as the budget allows."""
    rounds: int | None = None
    """Rounds of the search; None has as many as planned, and more if there is time."""
    held_out: int = 10
    """Seeds that the search does not see."""
    seed: int = 1
    jobs: int = 1
    output: Path = Path("tuned")
