"""The report of a comparison: tables with the columns of the published ones, as Markdown."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from epp.simulate.figures import Figures, Interval, changes, interval
from epp.simulate.fleet import FleetSettings
from epp.simulate.trial import Result, Trial


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a table."""

    title: str
    value: Callable[[Figures], float]
    digits: int
    scale: float = 1.0
    compared: bool = False
    """Whether it is also said by how much it differs from the first policy's."""


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
INTRODUCTION = """\
Simulated: no model ran and no GPU was there. The engines are a model of vLLM's scheduler and caches in virtual time;
what decides is the real picker. docs/simulator.md says what the model was calibrated on, and how well it does on
published tables.

± is a 95 % interval of the mean over seeds; changes compare runs of one seed. Decisions are CPU time of this machine.
"""


def markdown(
    trials: Sequence[Trial], results: Sequence[Result], plots: Sequence[str] = (), words: Sequence[str] = ()
) -> str:
    """The whole report; ``words`` are the flags that it was made with."""
    lines = ["# Simulated comparison", "", INTRODUCTION]
    lines += [f"Made by `{shlex.join(['tierwise', 'simulate', *words])}`.", ""]
    for (workload, endpoints), group in grouped(results):
        trial = next(t for t in trials if (t.workload, t.endpoints) == (workload, endpoints))
        kind = trial.engine
        lines += [f"## {workload}, {endpoints} endpoints", ""]
        tiers = f"{kind.gpu_tokens:,} tokens in GPU memory, {kind.cpu_tokens:,} in CPU memory"
        numbers = ", ".join(str(seed) for seed in seeds(group))
        lines += [f"{kind.model}, {kind.ranks} x {kind.gpu} each: {tiers} ({kind.source}). Seeds: {numbers}.", ""]
        lines += ways(trial.settings)
        lines += [*table(group, lambda result: result.whole), ""]
        stages = group[0].stages
        for n, stage in enumerate(stages if len(stages) > 1 else ()):
            lines += [f"### {stage.name}", "", *table(group, partial(figures_of_stage, n)), ""]
        refused = sum(result.whole.refused for result in group)
        requests = sum(result.whole.requests for result in group)
        why = next((result.whole.refusal for result in group if result.whole.refusal), "")
        said = f"{refused:,} of {requests:,} requests were refused, and count in nothing; the first by {why}"
        lines += [f"**{said}**", ""] if refused else []
        failed = {name for result in group for name in result.failures}
        lines += [f"**Plugins that failed and were skipped: {', '.join(sorted(failed))}.**", ""] if failed else []
    lines += [line for plot in plots for line in (f"![{plot}]({plot})", "")]
    return "\n".join(lines)


def ways(settings: FleetSettings) -> list[str]:
    """How requests reach the endpoints: a paragraph, or nothing where that is by one picker that sees them all."""
    said = []
    if settings.pickers > 1:
        said.append(f"{settings.pickers} pickers, each of which knows its own picks only.")
    if settings.past_pickers:
        said.append(f"{100 * settings.past_pickers:g} % of the requests go past the pickers, to each endpoint in turn.")
    return [" ".join(said), ""] if said else []


def figures_of_stage(number: int, result: Result) -> Figures:
    """Of one stage, counted from 0."""
    return result.stages[number].figures


def grouped(results: Sequence[Result]) -> Iterator[tuple[tuple[str, int], list[Result]]]:
    """Results by workload and fleet size, in order of appearance."""
    places = dict.fromkeys((result.workload, result.endpoints) for result in results)
    for place in places:
        yield place, [result for result in results if (result.workload, result.endpoints) == place]


def seeds(results: Sequence[Result]) -> list[int]:
    """The seeds, in order."""
    return sorted({result.seed for result in results})


def table(results: Sequence[Result], of: Callable[[Result], Figures]) -> list[str]:
    """One line for each policy; the first is what the others are compared with."""
    by_policy: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: result.seed):
        by_policy.setdefault(result.policy, []).append(result)
    order = dict.fromkeys(result.policy for result in results)
    base = [of(result) for result in by_policy[next(iter(order))]]
    titles = ["policy", *(column.title for column in COLUMNS), "decision (µs)", "p99 (µs)"]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for policy in order:
        runs = by_policy[policy]
        those = [of(result) for result in runs]
        cells = [cell(column, those, base) for column in COLUMNS]
        timing = [
            f"{interval([r.decision_mean_us for r in runs]).mean:.0f}",
            f"{max(r.decision_p99_us for r in runs):.0f}",
        ]
        lines.append(f"| {' | '.join([policy, *cells, *timing])} |")
    return lines


def cell(column: Column, those: Sequence[Figures], base: Sequence[Figures]) -> str:
    """``12.3 ± 0.4 (-5.6 ± 0.7 %)``."""
    text = shown(interval([column.value(figures) * column.scale for figures in those]), column.digits)
    if column.compared and text != UNKNOWN and those != base and len(those) == len(base):
        text += f" ({shown(changes(those, base, lambda f: 100.0 * column.value(f)), 1, percent=True)} %)"
    return text


def shown(value: Interval, digits: int, *, percent: bool = False) -> str:
    """A mean and its margin, where one is known; a dash for what nobody was served to know of."""
    if math.isnan(value.mean):
        return UNKNOWN
    mean = value.mean * (100.0 if percent else 1.0)
    margin = value.margin * (100.0 if percent else 1.0)
    text = f"{mean:{'+' if percent else ''},.{digits}f}"
    return text if math.isnan(margin) else f"{text} ± {margin:,.{digits}f}"
