"""The command ``tierwise tune``: finds weights in the simulator and tests them on seeds that the search did not use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from epp.config.wiring.kinds import known_kinds
from epp.errors import ConfigError
from epp.lab.fleet import engines, policies
from epp.lab.fleet.fleet import FleetSettings
from epp.lab.fleet.loads import FleetLoad, in_words, load_for
from epp.lab.fleet.policies import Policy
from epp.lab.fleet.stages import requests_of
from epp.lab.fleet.trial import Trial
from epp.lab.interruption import result_folder, sigterm_interrupts
from epp.lab.tune import written
from epp.lab.tune.budget import FEWEST, MOST_CANDIDATES, Budget
from epp.lab.tune.candidates import BASELINE, candidates
from epp.lab.tune.gain import COLUMNS, Gain, cost, gain_of
from epp.lab.tune.options import TuneOptions
from epp.lab.tune.search import Found, Round, runs_of, search
from epp.lab.tune.simulations import SeededCandidate, Simulations, simulations
from epp.lab.tune.tables import gains, race, sentence
from epp.printing.progress import Progress
from epp.printing.prose import Prose, console_for, show
from epp.runtime.logs import counted

HELD_OUT_FROM = 1_000_000
"""Seeds of the search are below this; held-out seeds begin here."""
NOT_BETTER = 1
"""The exit status if nothing better than the baseline was found."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one search, which the same ``candidates``, ``rounds`` and ``seed`` repeat."""

    workload: str
    engine: str
    endpoints: int
    objective: str
    seed: int
    runs: int
    rounds: int
    candidates: int
    seconds: float
    standings: dict[str, dict[str, float]]
    """Per candidate: its ratio to the baseline, and on how many seeds."""
    winner: str
    gain: Gain | None


def run_tune(options: TuneOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError for what cannot be tuned."""
    template = trial_template(options)
    requests = requests_of(template.config, first_seed(options))
    with sigterm_interrupts(), result_folder(options.output):
        earlier = written.earlier_in(options.output)
        console = console_for()
        load = in_words(FleetLoad(template.config, template.written_for), requests, template.endpoints)
        fleet = f"{template.endpoints} x {template.engine.name}"
        show(console, [Prose(f"Load of each run, on {fleet}: {load}."), Prose("")])
        return _tune(options, template, console, earlier=earlier)


def _tune(options: TuneOptions, template: Trial, console: Console, *, earlier: bool) -> int:
    every = candidates(MOST_CANDIDATES, template.engine, set(known_kinds()), options.seed)
    by_name = {policy.name: policy for policy in every}
    if len(by_name) < len(every):
        raise AssertionError("two candidates have one name")

    def trial_of(name: str, seed: int) -> Trial:
        return msgspec.structs.replace(template, policy=by_name[name], seed=seed)

    with simulations(trial_of, options.jobs) as simulated:
        budget = Budget(options, simulated)
        first_look(options, simulated)
        found = look(options, simulated, every[: budget.candidates() + 1], budget)
        best = by_name[found.best.name]
        gain = None if best.name == BASELINE else measure(options, simulated, best, budget)
    tried = Tried(
        workload=template.workload, engine=template.engine.name, endpoints=template.endpoints,
        objective=options.objective.value, seed=options.seed, runs=found.runs, rounds=found.rounds,
        candidates=len(found.standings) - 1, seconds=budget.spent_s,
        standings={s.name: {"ratio": s.ratio, "seeds": len(s.ratios)} for s in found.standings},
        winner=found.best.name, gain=gain,
    )  # fmt: skip
    proven = gain is not None and gain.proven
    chosen = by_name[found.best.name if proven else BASELINE]
    trace = template.config.data.trace is not None
    conclusion = sentence(options.objective, best.title, found.runs, gain, trace=trace)
    about = f"{written.MADE_BY} for {template.workload} on {template.endpoints} x {template.engine.name}:\n{conclusion}"
    if proven or not earlier:
        written.write(options.output, written.configuration(chosen, template.engine, about), tried)
    show(console, (*race(found, by_name, options.objective), *gains(gain, options.objective, trace=trace)))
    show(console, [Prose(conclusion, "bold")])
    if trace:
        again = "The same requests come in every run, so that is true of this trace alone: try it on another one."
        show(console, [Prose(again)])
    config, values = options.output / written.CONFIG, options.output / written.VALUES
    if earlier and not proven:
        done = f"Nothing is written: {config} and the files beside it stay as an earlier search has made them."
    else:
        done = "Replaced an earlier search's result" if earlier else "Written"
        done += f", with {chosen.title}: {config} for tierwise serve --config-file, {values} for helm upgrade -f."
    show(console, [Prose(done), Prose(budget.in_words(found))])
    return 0 if proven else NOT_BETTER


def trial_template(options: TuneOptions) -> Trial:
    """Return what all simulations have in common. Raises: ConfigError that names the flag's value."""
    title = Path(options.workload).stem
    engine = engines.choose(options.engine or engines.of_workload(title).name, options.gpu_tokens, options.cpu_tokens)
    policy = policies.BY_NAME["tiered"]
    policies.plan_of(policy, engine.preset(), 0)
    endpoints = options.endpoints or engine.endpoints
    load = load_for(options.workload, endpoints, options.written_for)
    return Trial(
        policy=policy, workload=title, config=load.config, engine=engine, endpoints=endpoints, seed=0,
        settings=FleetSettings(), written_for=load.written_for,
    )  # fmt: skip


def first_look(options: TuneOptions, simulated: Simulations) -> None:
    """Run the baseline to measure its time. Raises: ConfigError if the engines cannot serve the workload."""
    first, count = first_seed(options), max(2, options.jobs)
    with Progress("the baseline first", count, "simulations") as progress:
        seeds = range(first, first + count)
        done = simulated.run([(BASELINE, seed) for seed in seeds], lambda: True, lambda _: progress.advance())
    refused, requests = (sum(getattr(f, key) for f in done.values()) for key in ("refused", "requests"))
    if refused:
        raise ConfigError(
            f"--workload={options.workload}: {refused} of {requests} requests are longer than the engine's context, or "
            "than its GPU memory; take another --engine, or more --gpu-tokens"
        )


def first_seed(options: TuneOptions) -> int:
    """Return the search's first seed; other searches have other workloads."""
    return 1 + options.seed * 1000 % (HELD_OUT_FROM - 1000)


def look(options: TuneOptions, simulated: Simulations, tried: Sequence[Policy], budget: Budget) -> Found:
    """Search among ``tried``, the baseline first, and show the progress."""
    titles = {policy.name: policy.title for policy in tried}
    total = runs_of(len(tried) - 1)
    with Progress(f"{len(tried) - 1} candidates", total, "simulations") as progress:

        def may_begin() -> bool:
            return budget.allows_another(after=2 * options.held_out)

        def evaluate(wanted: Sequence[SeededCandidate]) -> Mapping[SeededCandidate, float]:
            progress.expect(len(wanted))
            left = [one for one in wanted if one not in simulated.done]
            progress.advance(len(wanted) - len(left))
            simulated.run(left, may_begin, lambda one: progress.advance(note=titles[one[0]]))
            return {one: cost(options.objective, simulated.done[one]) for one in wanted if one in simulated.done}

        def ended(each: Round) -> None:
            ratio = each.best.ratio if COLUMNS[options.objective].less else 1 / each.best.ratio
            progress.say(
                f"round {each.number}, {counted(each.candidates, 'candidate')} on {counted(each.seeds, 'new seed')}: "
                f"best so far {titles[each.best.name]}, ×{ratio:.3f} of {BASELINE}'s; {budget.spent_s:.0f} s"
            )

        names = list(titles)
        return search(names, evaluate, first_seed(options), budget.room, options.rounds, ended)


def measure(options: TuneOptions, simulated: Simulations, winner: Policy, budget: Budget) -> Gain:
    """Measure the gain of ``winner`` on held-out seeds: as many as the time allows, but at least ``FEWEST``."""
    begin = HELD_OUT_FROM + options.seed * options.held_out
    seeds = range(begin, begin + options.held_out)
    wanted = [(name, seed) for seed in seeds for name in (BASELINE, winner.name)]
    sure, others = wanted[: 2 * FEWEST], wanted[2 * FEWEST :]
    with Progress(f"{winner.title} on held-out seeds", len(wanted), "simulations") as progress:
        done = dict(simulated.run(sure, lambda: True, lambda _: progress.advance()))
        done.update(simulated.run(others, budget.allows_another, lambda _: progress.advance()))
    pairs = [seed for seed in seeds if (BASELINE, seed) in done and (winner.name, seed) in done]
    base, ours = ([done[name, seed] for seed in pairs] for name in (BASELINE, winner.name))
    return gain_of(options.objective, pairs, base, ours)
