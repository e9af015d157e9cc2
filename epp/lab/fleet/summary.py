"""The most important figures of a comparison, for a terminal; the report has all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType

from epp.lab.fleet.figures import Figures, changes, interval
from epp.lab.fleet.report import UNKNOWN, by_policy, grouped, heading, remarks, shown, verdict
from epp.lab.fleet.trial import Result, Trial
from epp.printing.prose import Prose
from epp.printing.sheet import Sheet


def of_results(trials: Sequence[Trial], results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yield a table and a few sentences for each workload and fleet size."""
    for (workload, endpoints), group in grouped(results):
        trial = next(t for t in trials if (t.workload, t.endpoints) == (workload, endpoints))
        yield _table(f"{workload}, {endpoints} endpoints (simulated)", group)
        for sentence in (*heading(trial, group), *remarks(group), verdict(group)):
            yield Prose(sentence, "dim")
        yield Prose("")


def _table(title: str, results: Sequence[Result]) -> Sheet:
    policies = by_policy(results)
    first, *others = policies
    base = [result.whole for result in policies[first]]
    compared = [f"against {first}"] if others else []
    sheet = Sheet(title, "policy", "mean TTFT (s)", *compared, "P90 TTFT (s)", "throughput (tok/s)", *compared)
    for policy, runs in policies.items():
        those = [result.whole for result in runs]
        change = [_change(those, base, lambda f: f.mean_ttft_s)] if others else []
        faster = [_change(those, base, lambda f: f.tokens_per_s)] if others else []
        sheet.add(
            policy, _mean(those, lambda f: f.mean_ttft_s, 2), *change, _mean(those, lambda f: f.p90_ttft_s, 2),
            _mean(those, lambda f: f.tokens_per_s, 0), *faster,
        )  # fmt: skip
    return sheet


def _mean(those: Sequence[Figures], of: Callable[[Figures], float], digits: int) -> str:
    mean = interval([of(figures) for figures in those]).mean
    return UNKNOWN if mean != mean else f"{mean:,.{digits}f}"


def _change(those: Sequence[Figures], base: Sequence[Figures], of: Callable[[Figures], float]) -> str:
    if those == base or len(those) != len(base):
        return ""
    text = shown(changes(those, base, of), 1, percent=True)
    return text if text == UNKNOWN else f"{text} %"
