"""Runs simulations, several at a time, until the time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager

from epp.lab.fleet.figures import Figures
from epp.lab.fleet.processes import processes
from epp.lab.fleet.trial import Trial, run

RECENT = 10
"""The number of last simulations that predict the duration of the next one."""
SeededCandidate = tuple[str, int]
"""A candidate's name and a seed."""


class Simulations:
    """Simulations of one workload and fleet, with any policy and any seed.

    Owner: one caller. With several ``jobs`` each simulation runs in another process.
    """

    def __init__(self, trial_of: Callable[[str, int], Trial], pool: ProcessPoolExecutor | None, jobs: int) -> None:
        self._trial_of, self._pool, self._jobs = trial_of, pool, jobs
        self.done: dict[SeededCandidate, Figures] = {}
        self.seconds: list[float] = []
        """The duration of each simulation."""

    @property
    def each_s(self) -> float:
        """Recent wall time per simulation, with as many at a time as there are jobs."""
        lately = self.seconds[-RECENT:]
        return sum(lately) / len(lately) / self._jobs

    def run(
        self,
        wanted: Sequence[SeededCandidate],
        may_begin: Callable[[], bool],
        ended: Callable[[SeededCandidate], None] = lambda _: None,
    ) -> Mapping[SeededCandidate, Figures]:
        """Run the simulations in ``wanted``, in order; start no more once ``may_begin`` returns False."""
        for one, figures, took_s in self._all(wanted, may_begin):
            self.done[one] = figures
            self.seconds.append(took_s)
            ended(one)
        return {one: self.done[one] for one in wanted if one in self.done}

    def _all(
        self, wanted: Sequence[SeededCandidate], may_begin: Callable[[], bool]
    ) -> Iterator[tuple[SeededCandidate, Figures, float]]:
        if self._pool is None:
            for one in wanted:
                if not may_begin():
                    return
                result = run(self._trial_of(*one))
                yield one, result.whole, result.wall_s
            return
        running: list[tuple[SeededCandidate, Future[tuple[Figures, float]]]] = []
        left = iter(wanted)
        while True:
            while len(running) < self._jobs and may_begin():
                following = next(left, None)
                if following is None:
                    break
                running.append((following, self._pool.submit(_run, self._trial_of(*following))))
            if not running:
                return
            one, future = running.pop(0)
            figures, took_s = future.result()
            yield one, figures, took_s


@contextmanager
def simulations(trial_of: Callable[[str, int], Trial], jobs: int) -> Iterator[Simulations]:
    """Yield simulations that are ready to run; their processes end with the context."""
    if jobs == 1:
        yield Simulations(trial_of, None, 1)
        return
    with processes(jobs) as pool:
        yield Simulations(trial_of, pool, jobs)


def _run(trial: Trial) -> tuple[Figures, float]:
    result = run(trial)
    return result.whole, result.wall_s
