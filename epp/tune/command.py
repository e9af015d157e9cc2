"""``tierwise tune``: weights for a workload, found in the simulator and tried on seeds that the search has not seen."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from math import ceil, inf
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from epp.config.kinds import known_kinds
from epp.errors import ConfigError
from epp.simulate import engines, policies, workload
from epp.simulate.command import ENGINES
from epp.simulate.fleet import FleetSettings
from epp.simulate.trial import Trial
from epp.tune import written
from epp.tune.candidates import BASELINE, candidates
from epp.tune.gain import Gain, cost, gain_of
from epp.tune.options import TuneOptions
from epp.tune.search import Found, affordable, runs_of, search
from epp.tune.simulations import Asked, Simulations, simulations
from epp.tune.tables import gains, race, sentence

HELD_OUT_FROM = 1_000_000
"""Seeds of the search are below, those that it does not see are from here on."""
FEWEST, MOST_CANDIDATES = 3, 400
CARE = 0.8
"""Of the time that is left, the share that is planned: other candidates may take longer than the baseline."""
NOT_BETTER = 1
"""The exit code where nothing was found that is better than the baseline."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one search, to be repeated with the same ``runs`` and ``seed``."""

    workload: str
    engine: str
    endpoints: int
    objective: str
    seed: int
    runs: int
    candidates: int
    seconds: float
    standings: dict[str, dict[str, float]]
    """By candidate: its ratio to the baseline, and on how many seeds."""
    winner: str
    gain: Gain | None


def run_tune(options: TuneOptions) -> int:
    """Run the command; the process's exit status. Raises: ConfigError for what cannot be tuned."""
    began = time.monotonic()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    template = trial_template(options)
    earlier = written.prepare(options.output)
    every = candidates(MOST_CANDIDATES, template.engine, set(known_kinds()), options.seed)
    by_name = {policy.name: policy for policy in every}
    if len(by_name) < len(every):
        raise AssertionError("two candidates have one name")

    def trial_of(name: str, seed: int) -> Trial:
        return msgspec.structs.replace(template, policy=by_name[name], seed=seed)

    with simulations(trial_of, options.jobs) as simulated:
        first_look(options, simulated)
        names = [policy.name for policy in every[: plan(options, simulated, began) + 1]]
        found = look(options, simulated, names, began, console)
        gain = None if found.best.name == BASELINE else measure(options, simulated, found.best.name, began, console)
    tried = Tried(
        workload=template.workload, engine=template.engine.name, endpoints=template.endpoints,
        objective=options.objective.value, seed=options.seed, runs=found.runs, candidates=len(found.standings) - 1,
        seconds=time.monotonic() - began,
        standings={s.name: {"ratio": s.ratio, "seeds": len(s.ratios)} for s in found.standings},
        winner=found.best.name, gain=gain,
    )  # fmt: skip
    proven = gain is not None and gain.proven
    chosen = by_name[found.best.name if proven else BASELINE]
    trace = template.config.data.trace is not None
    told = sentence(options.objective, by_name[found.best.name].title, found.runs, gain, trace=trace)
    about = f"{written.MADE_BY} for {template.workload} on {template.endpoints} x {template.engine.name}:\n{told}"
    if proven or not earlier:
        written.write(options.output, written.configuration(chosen, template.engine, about), tried)
    for part in (*race(found, by_name, options.objective), *gains(gain, options.objective, trace=trace)):
        console.print(part)
    console.print(told, style="bold")
    if trace:
        console.print(
            "The same requests come in every run, so that is true of this trace alone: try it on another one."
        )
    again = f"--candidates={len(found.standings) - 1} --seed={options.seed}"
    repeat = f"repeat it with {again}" if found.whole else f"the time ended it early, all of it is {again}"
    config, values = options.output / written.CONFIG, options.output / written.VALUES
    if earlier and not proven:
        console.print(f"Nothing is written: {config} and the files beside it stay as an earlier search has made them.")
    else:
        done = "Replaced an earlier search's result" if earlier else "Written"
        console.print(
            f"{done}, with {chosen.title}: {config} for tierwise serve --config-file, {values} for helm upgrade -f."
        )
    console.print(f"The search took {tried.seconds:.0f} s; {repeat}.")
    return 0 if proven else NOT_BETTER


def trial_template(options: TuneOptions) -> Trial:
    """What all simulations have in common. Raises: ConfigError naming the flag's value."""
    config = workload.choose(options.workload)
    title = Path(options.workload).stem
    engine = engines.choose(
        options.engine or ENGINES.get(title, engines.DEFAULT), options.gpu_tokens, options.cpu_tokens
    )
    policy = policies.BY_NAME["tiered"]
    policies.plan_of(policy, engine.preset(), 0)
    return Trial(
        policy=policy, workload=title, config=config, engine=engine, endpoints=options.endpoints or engine.endpoints,
        seed=0, settings=FleetSettings(),
    )  # fmt: skip


def first_look(options: TuneOptions, simulated: Simulations) -> None:
    """Run the baseline: how long does it take? Raises: ConfigError where the engines cannot serve the workload."""
    first = first_seed(options)
    done = simulated.run([(BASELINE, seed) for seed in range(first, first + max(2, options.jobs))], lambda: True)
    refused, requests = (sum(getattr(f, key) for f in done.values()) for key in ("refused", "requests"))
    if refused:
        raise ConfigError(
            f"--workload={options.workload}: {refused} of {requests} requests are longer than the engine's context, or "
            "than its GPU memory; take another --engine, or more --gpu-tokens"
        )


def plan(options: TuneOptions, simulated: Simulations, began: float) -> int:
    """How many candidates there is time for. Raises: ConfigError where that are too few, with a budget that is "
    "enough."""
    if options.candidates is not None:
        return options.candidates
    each_s, spent_s = simulated.each_s, time.monotonic() - began
    held_out_s = 2 * options.held_out * each_s
    count = min(affordable(int((options.budget_s - spent_s - held_out_s) * CARE / each_s)), MOST_CANDIDATES)
    if count < FEWEST:
        enough_s = runs_of(FEWEST) * each_s / CARE + held_out_s + spent_s
        raise ConfigError(
            f"--budget={options.budget_s:g}s: one simulation of this workload takes {each_s:.1f} s, and a search "
            f"with 2 x "
            f"{options.held_out} held-out ones {ceil(enough_s * 1.2)} s at least; raise --budget, or lower --held-out "
            "or --endpoints"
        )
    return count


def time_left(options: TuneOptions, simulated: Simulations, began: float, after: int = 0) -> bool:
    """Whether another simulation may begin, ``after`` which so many are still to come."""
    if options.candidates is not None:
        return True
    return time.monotonic() + after * simulated.each_s / CARE < began + options.budget_s


def first_seed(options: TuneOptions) -> int:
    """Of the search; other searches have other workloads."""
    return 1 + options.seed * 1000 % (HELD_OUT_FROM - 1000)


def look(options: TuneOptions, simulated: Simulations, names: Sequence[str], began: float, console: Console) -> Found:
    """The search, with progress."""

    def may_begin() -> bool:
        return time_left(options, simulated, began, after=2 * options.held_out)

    def room() -> float:
        left_s = began + options.budget_s - time.monotonic()
        return inf if options.candidates is not None else left_s * CARE / simulated.each_s - 2 * options.held_out

    with progress_on(console) as progress:
        task = progress.add_task(f"{len(names) - 1} candidates", total=runs_of(len(names) - 1))

        def evaluate(asked: Sequence[Asked]) -> Mapping[Asked, float]:
            left = [one for one in asked if one not in simulated.done]
            progress.advance(task, len(asked) - len(left))
            simulated.run(left, may_begin, lambda _: progress.advance(task))
            return {one: cost(options.objective, simulated.done[one]) for one in asked if one in simulated.done}

        return search(names, evaluate, first_seed(options), room)


def measure(options: TuneOptions, simulated: Simulations, winner: str, began: float, console: Console) -> Gain:
    """What ``winner`` gains on held-out seeds, as many as there is time for, but ``FEWEST`` in any case."""
    begin = HELD_OUT_FROM + options.seed * options.held_out
    seeds = range(begin, begin + options.held_out)
    asked = [(name, seed) for seed in seeds for name in (BASELINE, winner)]
    sure, others = asked[: 2 * FEWEST], asked[2 * FEWEST :]
    with progress_on(console) as progress:
        task = progress.add_task(f"{winner} on held-out seeds", total=len(asked))
        done = dict(simulated.run(sure, lambda: True, lambda _: progress.advance(task)))
        more = simulated.run(others, lambda: time_left(options, simulated, began), lambda _: progress.advance(task))
        done.update(more)
    pairs = [seed for seed in seeds if (BASELINE, seed) in done and (winner, seed) in done]
    base, ours = ([done[name, seed] for seed in pairs] for name in (BASELINE, winner))
    return gain_of(options.objective, pairs, base, ours)


def progress_on(console: Console) -> Progress:
    """A bar, on terminals."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
