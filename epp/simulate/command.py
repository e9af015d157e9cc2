"""``tierwise simulate``: policies compared on workloads and fleets, in virtual time."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from epp.errors import ConfigError
from epp.simulate import engines, folder, policies, workload
from epp.simulate.fleet import FleetSettings
from epp.simulate.options import SimulateOptions
from epp.simulate.record import Record
from epp.simulate.stages import stages_of
from epp.simulate.trial import Result, Trial, run

INTERRUPTED = 130
SHOWN_EVERY = 50
"""Requests between two updates of the progress."""
ENGINES = {
    "ladder-16k": "qwen3-32b-tp2-h100-full",
    "storage-50k": "llama-3.3-70b-tp4-h100",
    "storage-70k": "llama-3.3-70b-tp4-h100",
}
"""What the published tables of a workload are about, where it is not the default."""


def run_simulate(options: SimulateOptions) -> int:
    """Run the command; the process's exit status. Raises: ConfigError for what cannot be run."""
    trials = trials_of(options)
    totals = requests_of_each(trials)
    output = options.output
    folder.prepare(output)
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    began = time.monotonic()
    results = simulate(trials, totals, options.jobs, console)
    interrupted = len(results) < len(trials)
    results = whole_rounds(trials, results)
    if not results:
        console.print(f"interrupted before any seed was run with every policy: nothing is written to {output}")
        return INTERRUPTED
    text = folder.write(options, trials, results)
    requests = sum(result.whole.requests for result in results)
    console.print(text, markup=False, soft_wrap=True)
    console.print(f"{requests:,} requests in {time.monotonic() - began:.1f} s; written to {output}", markup=False)
    if interrupted:
        console.print(
            f"interrupted: {len(results)} of {len(trials)} runs, and no other, are in the report", markup=False
        )
    return INTERRUPTED if interrupted else 0


def trials_of(options: SimulateOptions) -> list[Trial]:
    """Every run that is asked for, all runs of a workload together. Raises: ConfigError naming the flag's value."""
    chosen = [policies.choose(name) for name in options.policies or [p.name for p in policies.POLICIES]]
    told_apart("--policy", [policy.name for policy in chosen])
    told_apart("--workload", [Path(name).stem for name in options.workloads])
    settings = FleetSettings(
        tells_tiers=options.tells_tiers, pickers=options.pickers, past_pickers=options.past_pickers
    )
    trials = []
    for name in options.workloads:
        config = workload.choose(name)
        title = Path(name).stem
        engine = engines.choose(
            options.engine or ENGINES.get(title, engines.DEFAULT), options.gpu_tokens, options.cpu_tokens
        )
        for policy in chosen:
            policies.plan_of(policy, engine.preset(), 0)  # what is wrong with it is said before anything runs
        trials += [
            Trial(
                policy=policy,
                workload=title,
                config=config,
                engine=engine,
                endpoints=endpoints,
                seed=seed,
                settings=settings,
            )
            for endpoints in options.endpoints or (engine.endpoints,)
            for seed in range(1, options.seeds + 1)
            for policy in chosen
        ]
    return trials


def told_apart(flag: str, names: Sequence[str]) -> None:
    """Raises: ConfigError where two have one name, for the report goes by names."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(f"{flag}: {count} of them are called {name!r} in the report; rename a file")


def requests_of_each(trials: Sequence[Trial]) -> list[int]:
    """How many requests each of them has. Raises: ConfigError for a trace's faults."""
    counts: dict[tuple[str, int, int], int] = {}
    for trial in trials:
        same = (trial.workload, trial.endpoints, trial.seed)
        if same not in counts:
            counts[same] = requests_of(trial)
    return [counts[trial.workload, trial.endpoints, trial.seed] for trial in trials]


def simulate(trials: Sequence[Trial], totals: Sequence[int], jobs: int, console: Console) -> list[Result]:
    """Run them, ``jobs`` at a time, with progress; results in the order of ``trials``, fewer after Ctrl-C.

    Raises: ConfigError when a run's process has died.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    results: list[Result] = []
    with (
        contextlib.suppress(KeyboardInterrupt),
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("requests", total=sum(totals))
        for trial, total, result in zip(trials, totals, _run(trials, jobs, progress, task), strict=True):
            results.append(result)
            if not console.is_terminal:
                console.print(f"{trial.name}: {total} requests in {result.wall_s:.1f} s", markup=False)
    return results


def whole_rounds(trials: Sequence[Trial], results: Sequence[Result]) -> list[Result]:
    """Those of ``results`` whose policies were all run on the same seed, so that they can be compared."""
    wanted = Counter((trial.workload, trial.endpoints, trial.seed) for trial in trials)
    done = Counter((result.workload, result.endpoints, result.seed) for result in results)
    whole = {place for place in done if done[place] == wanted[place]}
    return [result for result in results if (result.workload, result.endpoints, result.seed) in whole]


def requests_of(trial: Trial) -> int:
    """How many requests a run has."""
    config = workload.scaled(trial.config, trial.endpoints / trial.engine.endpoints)
    return sum(stage.source.requests for stage in stages_of(config, trial.seed))


def _run(trials: Sequence[Trial], jobs: int, progress: Progress, task: TaskID) -> Iterator[Result]:
    if jobs == 1:
        for trial in trials:
            progress.update(task, description=trial.name)
            yield run(trial, _counting(progress, task))
        return
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    try:
        for result in pool.map(run, trials):
            progress.advance(task, result.whole.requests)
            yield result
    except BrokenProcessPool as error:
        raise ConfigError(f"--jobs={jobs}: a run's process was killed, perhaps for its memory; take fewer") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _counting(progress: Progress, task: TaskID) -> Callable[[Record], None]:
    ended = 0

    def count(_: Record) -> None:
        nonlocal ended
        ended += 1
        if ended % SHOWN_EVERY == 0:
            progress.advance(task, SHOWN_EVERY)

    return count
