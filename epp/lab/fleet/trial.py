"""One run of a policy on a workload, a fleet and a seed, and its result."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from epp.lab.fleet.engines import EngineKind
from epp.lab.fleet.figures import Figures, figures_of
from epp.lab.fleet.fleet import Fleet, FleetSettings
from epp.lab.fleet.inference_perf import lifecycle
from epp.lab.fleet.policies import Policy, plan_of
from epp.lab.fleet.record import Record
from epp.lab.fleet.stages import stages_of
from epp.lab.fleet.workload import Config
from epp.lab.stats import mean, percentile

APART = 1 << 20
"""The distance between the seeds of two pickers, larger than the number of seeds of runs."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. Plain data, since it is sent to other processes."""

    policy: Policy
    workload: str
    config: Config
    """The load as it is run; a preset is already scaled to the fleet."""
    engine: EngineKind
    endpoints: int
    seed: int
    settings: FleetSettings
    written_for: int | None = None
    """The number of endpoints that the workload was written for, if ``config`` was scaled from that."""

    @property
    def name(self) -> str:
        """The name of the run, for files and progress."""
        return f"{self.workload}-{self.endpoints}-{self.policy.name}-seed{self.seed}"


class StageResult(msgspec.Struct, frozen=True):
    """The result of one stage."""

    name: str
    figures: Figures
    lifecycle: dict[str, object]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run. Units: seconds; microseconds of CPU time for the picker's decisions."""

    policy: str
    workload: str
    endpoints: int
    seed: int
    stages: list[StageResult]
    whole: Figures
    lifecycle: dict[str, object]
    decision_mean_us: float
    decision_p99_us: float
    wall_s: float
    failures: dict[str, int]
    """Per plugin: how often it was skipped because it failed."""


def run(trial: Trial, progress: Callable[[Record], None] | None = None) -> Result:
    """Simulate the trial from empty caches. Raises: ConfigError for an invalid policy or trace."""
    with without_warnings():
        return _run(trial, progress)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress the scorers' warnings: default capacities are intended in a simulation."""
    logger = logging.getLogger("scorers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _run(trial: Trial, progress: Callable[[Record], None] | None) -> Result:
    began = time.perf_counter()
    preset = trial.engine.preset()
    plans = [plan_of(trial.policy, preset, trial.seed + n * APART) for n in range(trial.settings.pickers)]
    fleet = Fleet(preset, plans, trial.endpoints, trial.seed, trial.settings)
    stages: list[StageResult] = []
    records: list[Record] = []
    for plan in stages_of(trial.config, trial.seed):
        if stages:
            fleet.rest(trial.config.load.interval)
        served = fleet.run(plan.source, progress).records
        records += served
        stages.append(StageResult(plan.name, figures_of(served), lifecycle(served, plan)))
    decisions = fleet.decision_seconds
    return Result(
        policy=trial.policy.name,
        workload=trial.workload,
        endpoints=trial.endpoints,
        seed=trial.seed,
        stages=stages,
        whole=figures_of(records),
        lifecycle=lifecycle(records),
        decision_mean_us=mean(decisions) * 1e6,
        decision_p99_us=percentile(decisions, 0.99) * 1e6,
        wall_s=time.perf_counter() - began,
        failures=fleet.failures,
    )
