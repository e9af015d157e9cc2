"""The command ``tierwise simulate``: policies compared on workloads and fleets, in virtual time."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from epp.errors import ConfigError
from epp.lab.fleet import engines, folder, policies, summary
from epp.lab.fleet.fleet import FleetSettings
from epp.lab.fleet.loads import load_for
from epp.lab.fleet.options import SimulateOptions
from epp.lab.fleet.processes import processes
from epp.lab.fleet.record import Record
from epp.lab.fleet.stages import requests_of
from epp.lab.fleet.trial import Result, Trial, run
from epp.lab.interruption import result_folder, sigterm_interrupts
from epp.printing.progress import Progress
from epp.printing.prose import Prose, console_for, show

INTERRUPTED = 130
SHOWN_EVERY = 50
"""Requests between two updates of the progress."""


def run_simulate(options: SimulateOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError for what cannot be run."""
    trials = trials_of(options)
    totals = requests_of_each(trials)
    with sigterm_interrupts(), result_folder(options.output):
        return _compare(options, trials, totals)


def _compare(options: SimulateOptions, trials: Sequence[Trial], totals: Sequence[int]) -> int:
    output, console = options.output, console_for()
    began = time.monotonic()
    results = simulate(trials, totals, options.jobs)
    interrupted = len(results) < len(trials)
    results = whole_rounds(trials, results)
    if not results:
        show(console, [Prose("interrupted before any seed was run with every policy: nothing is written")])
        return INTERRUPTED
    folder.write(options, trials, results)
    show(console, summary.of_results(trials, results))
    requests = sum(result.whole.requests for result in results)
    report = output / folder.REPORT
    sentence = f"{requests:,} requests in {time.monotonic() - began:.1f} s. More figures of each run are in {report}."
    if interrupted:
        sentence += f" Interrupted: {len(results)} of {len(trials)} runs, and no other, are in the report."
    show(console, [Prose(sentence)])
    return INTERRUPTED if interrupted else 0


def trials_of(options: SimulateOptions) -> list[Trial]:
    """Return every requested run, grouped by workload. Raises: ConfigError that names the flag's value."""
    chosen = [policies.choose(name) for name in options.policies or [p.name for p in policies.POLICIES]]
    told_apart("--policy", [policy.name for policy in chosen])
    told_apart("--workload", [Path(name).stem for name in options.workloads])
    settings = FleetSettings(
        tells_tiers=options.tells_tiers, pickers=options.pickers, past_pickers=options.past_pickers
    )
    trials = []
    for name in options.workloads:
        title = Path(name).stem
        engine = engines.choose(
            options.engine or engines.of_workload(title).name, options.gpu_tokens, options.cpu_tokens
        )
        for policy in chosen:
            policies.plan_of(policy, engine.preset(), 0)  # reports a broken policy before anything runs
        trials += [
            Trial(
                policy=policy,
                workload=title,
                config=load.config,
                engine=engine,
                endpoints=endpoints,
                seed=seed,
                settings=settings,
                written_for=load.written_for,
            )
            for endpoints in options.endpoints or (engine.endpoints,)
            for load in (load_for(name, endpoints, options.written_for),)
            for seed in range(1, options.seeds + 1)
            for policy in chosen
        ]
    return trials


def told_apart(flag: str, names: Sequence[str]) -> None:
    """Check that no name occurs twice, since the report uses names. Raises: ConfigError if one does."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(f"{flag}: {count} of them are called {name!r} in the report; rename a file")


def requests_of_each(trials: Sequence[Trial]) -> list[int]:
    """Return the number of requests of each trial. Raises: ConfigError for an invalid trace."""
    counts: dict[tuple[str, int, int], int] = {}
    for trial in trials:
        same = (trial.workload, trial.endpoints, trial.seed)
        if same not in counts:
            counts[same] = requests_of(trial.config, trial.seed)
    return [counts[trial.workload, trial.endpoints, trial.seed] for trial in trials]


def simulate(trials: Sequence[Trial], totals: Sequence[int], jobs: int) -> list[Result]:
    """Run the trials, ``jobs`` at a time, with progress.

    The results have the order of ``trials``; after an interrupt there are fewer.
    Raises: ConfigError when the process of a run has died.
    """
    results: list[Result] = []
    with contextlib.suppress(KeyboardInterrupt), Progress("simulating", sum(totals), "requests") as progress:
        for result in _run(trials, jobs, progress):
            results.append(result)  # noqa: PERF402 - results before an interrupt are kept
    return results


def whole_rounds(trials: Sequence[Trial], results: Sequence[Result]) -> list[Result]:
    """Return those ``results`` whose seed was run with every policy, so that the policies can be compared."""
    wanted = Counter((trial.workload, trial.endpoints, trial.seed) for trial in trials)
    done = Counter((result.workload, result.endpoints, result.seed) for result in results)
    whole = {place for place in done if done[place] == wanted[place]}
    return [result for result in results if (result.workload, result.endpoints, result.seed) in whole]


def _run(trials: Sequence[Trial], jobs: int, progress: Progress) -> Iterator[Result]:
    if jobs == 1:
        for trial in trials:
            result = run(trial, _counting(progress, trial.name))
            progress.advance(result.whole.requests % SHOWN_EVERY, trial.name)
            yield result
        return
    try:
        with processes(jobs) as pool:
            for trial, result in zip(trials, pool.map(run, trials), strict=True):
                progress.advance(result.whole.requests, trial.name)
                yield result
    except BrokenProcessPool as error:
        raise ConfigError(f"--jobs={jobs}: a run's process was killed, perhaps for its memory; take fewer") from error


def _counting(progress: Progress, name: str) -> Callable[[Record], None]:
    ended = 0

    def count(_: Record) -> None:
        nonlocal ended
        ended += 1
        if ended % SHOWN_EVERY == 0:
            progress.advance(SHOWN_EVERY, name)

    return count
