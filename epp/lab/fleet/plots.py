"""Plots of a comparison. This is the only module that needs matplotlib (extra ``bench``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from epp.lab.fleet.figures import Figures, interval
from epp.lab.fleet.report import grouped
from epp.lab.fleet.trial import Result

PANELS: tuple[tuple[str, Callable[[Figures], float]], ...] = (
    ("mean TTFT (s)", lambda f: f.mean_ttft_s),
    ("P90 TTFT (s)", lambda f: f.p90_ttft_s),
    ("throughput (tok/s)", lambda f: f.tokens_per_s),
)


def draw(results: Sequence[Result], folder: Path) -> list[str]:
    """Write one plot for each workload and fleet size, and return their names."""
    mpl.use("agg")
    names = []
    for (workload, endpoints), group in grouped(results):
        figure = Figure(figsize=(13, 4), layout="constrained")
        figure.suptitle(f"{workload}, {endpoints} endpoints (simulated)")
        for axes, (title, value) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            axes.set_title(title)
            stages = len(group[0].stages)
            (_lines if stages > 1 else _bars)(axes, group, value)
        name = f"{workload}-{endpoints}.png"
        figure.savefig(folder / name, dpi=110)
        names.append(name)
    return names


def _policies(results: Sequence[Result]) -> dict[str, list[Result]]:
    return {name: [r for r in results if r.policy == name] for name in dict.fromkeys(r.policy for r in results)}


def _bars(axes: Axes, results: Sequence[Result], value: Callable[[Figures], float]) -> None:
    policies = _policies(results)
    means = [interval([value(result.whole) for result in runs]) for runs in policies.values()]
    margins = [mean.margin if mean.margin == mean.margin else 0.0 for mean in means]
    axes.barh(list(policies), [mean.mean for mean in means], xerr=margins, color="#4878a8")
    axes.invert_yaxis()


def _lines(axes: Axes, results: Sequence[Result], value: Callable[[Figures], float]) -> None:
    for name, runs in _policies(results).items():
        stages = range(len(runs[0].stages))
        means = [interval([value(result.stages[n].figures) for result in runs]).mean for n in stages]
        axes.plot([stage.name.partition(" ")[0] for stage in runs[0].stages], means, marker="o", label=name)
    axes.set_xlabel("load")
    axes.legend(fontsize=7)
