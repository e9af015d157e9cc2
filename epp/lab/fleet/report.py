"""The report of a comparison: tables with the columns of the published ones, as Markdown."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from epp.lab.fleet.figures import Figures, Interval, changes, interval
from epp.lab.fleet.fleet import FleetSettings
from epp.lab.fleet.loads import FleetLoad, in_words
from epp.lab.fleet.trial import Result, Trial


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    value: Callable[[Figures], float]
    digits: int
    scale: float = 1.0
    compared: bool = False
    """Whether the cell also has the change from the first policy."""


COLUMNS = (
    Column("mean TTFT (s)", lambda f: f.mean_ttft_s, 2, compared=True),
    Column("P90 TTFT (s)", lambda f: f.p90_ttft_s, 2),
    Column("mean E2E (s)", lambda f: f.mean_e2e_s, 1),
    Column("P90 E2E (s)", lambda f: f.p90_e2e_s, 1),
    Column("throughput (tok/s)", lambda f: f.tokens_per_s, 0, compared=True),
    Column("input (tok/s)", lambda f: f.input_tokens_per_s, 0),
    Column("output (tok/s)", lambda f: f.output_tokens_per_s, 0),
    Column("ITL (ms)", lambda f: f.itl_s, 1, 1e3),
    Column("GPU hits (%)", lambda f: f.gpu_share, 0, 100.0),
    Column("CPU hits (%)", lambda f: f.cpu_share, 0, 100.0),
    Column("predicted wrong (%)", lambda f: f.prediction_error, 1, 100.0),
)

UNKNOWN = "–"
DEFAULT_POLICY = "tiered"
"""The policy with the weights of the default profile."""
FILES = {"cost": "manifests/config/cost.yaml"}
"""Example configurations, by the policy that simulates them."""
INTRODUCTION = """\
Simulated: no model ran and no GPU was there. The engines are a model of vLLM's scheduler and caches in virtual time;
what decides is the real picker. docs/simulator.md describes what the model was calibrated on, and how well it
reproduces published tables.

± is a 95 % interval of the mean over seeds; changes compare runs of one seed. Decisions are CPU time of this machine.
"""


def markdown(
    trials: Sequence[Trial], results: Sequence[Result], plots: Sequence[str] = (), words: Sequence[str] = ()
) -> str:
    """Return the whole report; ``words`` are the flags of the command line."""
    lines = ["# Simulated comparison", "", INTRODUCTION]
    lines += [f"Made by `{shlex.join(['tierwise', 'simulate', *words])}`.", ""]
    for (workload, endpoints), group in grouped(results):
        trial = next(t for t in trials if (t.workload, t.endpoints) == (workload, endpoints))
        lines += [f"## {workload}, {endpoints} endpoints", ""]
        for sentence in heading(trial, group):
            lines += [sentence, ""]
        lines += [*table(group, lambda result: result.whole), ""]
        stages = group[0].stages
        for n, stage in enumerate(stages if len(stages) > 1 else ()):
            lines += [f"### {stage.name}", "", *table(group, partial(figures_of_stage, n)), ""]
        lines += [verdict(group), ""] if verdict(group) else []
        for sentence in remarks(group):
            lines += [f"**{sentence}**", ""]
    lines += [line for plot in plots for line in (f"![{plot}]({plot})", "")]
    return "\n".join(lines)


def heading(trial: Trial, group: Sequence[Result]) -> list[str]:
    """Return sentences on what was run: the load, the engines, the seeds, and how requests reach the endpoints."""
    kind = trial.engine
    tiers = f"{kind.gpu_tokens:,} tokens in GPU memory, {kind.cpu_tokens:,} in CPU memory"
    numbers = ", ".join(str(seed) for seed in seeds(group))
    load = in_words(FleetLoad(trial.config, trial.written_for), group[0].whole.requests, trial.endpoints)
    return [
        f"{kind.model}, {kind.ranks} x {kind.gpu} each: {tiers} ({kind.source}). Seeds: {numbers}.",
        f"Load of each run: {load}.",
        *ways(trial.settings),
    ]


def remarks(group: Sequence[Result]) -> list[str]:
    """Return what went wrong, which the report shows in bold."""
    refused = sum(result.whole.refused for result in group)
    requests = sum(result.whole.requests for result in group)
    why = next((result.whole.refusal for result in group if result.whole.refusal), "")
    sentences = []
    if refused:
        sentences.append(f"{refused:,} of {requests:,} requests were refused, and count in nothing; the first by {why}")
    failed = {name for result in group for name in result.failures}
    if failed:
        sentences.append(f"Plugins that failed and were skipped: {', '.join(sorted(failed))}.")
    return sentences


def verdict(group: Sequence[Result]) -> str:
    """Name the policy with the shortest mean TTFT, compared to the default one if that ran; empty for one policy."""
    runs = {name: [result.whole for result in those] for name, those in by_policy(group).items()}
    means = {name: interval([figures.mean_ttft_s for figures in those]).mean for name, those in runs.items()}
    served = {name: mean for name, mean in means.items() if not math.isnan(mean)}
    if len(served) < 2:
        return ""
    best = min(served, key=served.__getitem__)
    base = DEFAULT_POLICY if DEFAULT_POLICY in served else next(iter(served))
    what = f"{base}, the weights of the default profile," if base == DEFAULT_POLICY else base
    if best == base:
        return f"Shortest mean TTFT: {what.removesuffix(',')}, {served[base]:.2f} s."
    change = changes(runs[best], runs[base], lambda f: f.mean_ttft_s)
    file = f" (its configuration is {FILES[best]})" if best in FILES else ""
    doubt = "; that may be chance" if not -change.mean > change.margin else ""
    return (
        f"Shortest mean TTFT: {best}{file}, {served[best]:.2f} s, where {what} has {served[base]:.2f} s "
        f"({shown(change, 1, percent=True)} %{doubt})."
    )


def ways(settings: FleetSettings) -> list[str]:
    """Describe how requests reach the endpoints; empty where one picker sees them all."""
    sentences = []
    if settings.pickers > 1:
        sentences.append(f"{settings.pickers} pickers, each of which has its own picks only.")
    if settings.past_pickers:
        sentences.append(
            f"{100 * settings.past_pickers:g} % of the requests go past the pickers, to each endpoint in turn."
        )
    return [" ".join(sentences)] if sentences else []


def figures_of_stage(number: int, result: Result) -> Figures:
    """Return the figures of one stage, counted from 0."""
    return result.stages[number].figures


def grouped(results: Sequence[Result]) -> Iterator[tuple[tuple[str, int], list[Result]]]:
    """Yield results by workload and fleet size, in the order of appearance."""
    places = dict.fromkeys((result.workload, result.endpoints) for result in results)
    for place in places:
        yield place, [result for result in results if (result.workload, result.endpoints) == place]


def seeds(results: Sequence[Result]) -> list[int]:
    """Return the seeds in ascending order."""
    return sorted({result.seed for result in results})


def by_policy(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the runs of each policy in the order of their seeds; policies in the order in which they appear."""
    policies: dict[str, list[Result]] = {result.policy: [] for result in results}
    for result in sorted(results, key=lambda result: result.seed):
        policies[result.policy].append(result)
    return policies


def table(results: Sequence[Result], of: Callable[[Result], Figures]) -> list[str]:
    """Return one line for each policy; the others are compared to the first."""
    policies = by_policy(results)
    base = [of(result) for result in next(iter(policies.values()))]
    titles = ["policy", *(column.title for column in COLUMNS), "decision (µs)", "p99 (µs)"]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for policy, runs in policies.items():
        those = [of(result) for result in runs]
        cells = [cell(column, those, base) for column in COLUMNS]
        timing = [
            f"{interval([r.decision_mean_us for r in runs]).mean:.0f}",
            f"{max(r.decision_p99_us for r in runs):.0f}",
        ]
        lines.append(f"| {' | '.join([policy, *cells, *timing])} |")
    return lines


def cell(column: Column, those: Sequence[Figures], base: Sequence[Figures]) -> str:
    """Format one cell: ``12.3 ± 0.4 (-5.6 ± 0.7 %)``."""
    text = shown(interval([column.value(figures) * column.scale for figures in those]), column.digits)
    if column.compared and text != UNKNOWN and those != base and len(those) == len(base):
        text += f" ({shown(changes(those, base, lambda f: 100.0 * column.value(f)), 1, percent=True)} %)"
    return text


def shown(value: Interval, digits: int, *, percent: bool = False) -> str:
    """Format a mean and its margin, if known; a dash if no request was served."""
    if math.isnan(value.mean):
        return UNKNOWN
    mean = value.mean * (100.0 if percent else 1.0)
    margin = value.margin * (100.0 if percent else 1.0)
    text = f"{mean:{'+' if percent else ''},.{digits}f}"
    return text if math.isnan(margin) else f"{text} ± {margin:,.{digits}f}"
