"""The report's folder: its text, its plots, all figures in one file, and each run in inference-perf's format."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from epp.lab.fleet import report
from epp.lab.fleet.options import SimulateOptions
from epp.lab.fleet.trial import Result, Trial
from epp.lab.interruption import uninterrupted

REPORT = "report.md"
RESULTS = "results.json"
LIFECYCLE = "lifecycle_metrics.json"


class _Run(msgspec.Struct):
    """The fields that identify a run in an earlier report."""

    workload: str
    endpoints: int
    policy: str
    seed: int


def write(options: SimulateOptions, trials: Sequence[Trial], results: Sequence[Result]) -> None:
    """Write the report in place of an earlier one. After an interrupt, exactly one of the two is there, complete."""
    output = options.output
    with TemporaryDirectory(prefix=".new-", dir=output) as made:
        new = Path(made)
        plots = _draw(results, new) if options.plots else []
        (new / REPORT).write_text(report.markdown(trials, results, plots, options.words))
        plain = [msgspec.to_builtins(result) for result in results]
        for result, run in zip(plain, results, strict=True):
            folder = _folder_of(new, run)
            folder.mkdir(parents=True)
            _write(folder / f"summary_{LIFECYCLE}", result.pop("lifecycle"))
            for n, stage in enumerate(result["stages"]):
                _write(folder / f"stage_{n}_{LIFECYCLE}", stage.pop("lifecycle"))
        _write(new / RESULTS, plain)
        with uninterrupted():
            _remove_earlier(output)
            for path in sorted(path for path in new.rglob("*") if path.is_file()):
                place = output / path.relative_to(new)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)


def _draw(results: Sequence[Result], output: Path) -> list[str]:
    """Draw the plots and return their names; without matplotlib, print a sentence and return none."""
    try:
        from epp.lab.fleet import plots
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print("no plots: matplotlib is missing; pip install '.[bench]' in a clone of Tierwise", file=sys.stderr)
        return []
    return plots.draw(results, output)


def _remove_earlier(output: Path) -> None:
    """Remove the files that the earlier results name: they would be taken for this report's. Other files stay."""
    try:
        runs = msgspec.json.decode((output / RESULTS).read_bytes(), type=list[_Run])
    except (OSError, msgspec.DecodeError):
        return
    for run in runs:
        if os.sep in run.workload or os.sep in run.policy:
            continue  # not one of our runs
        (output / f"{run.workload}-{run.endpoints}.png").unlink(missing_ok=True)
        folder = _folder_of(output, run)
        for path in folder.glob(f"*_{LIFECYCLE}"):
            path.unlink()
        with contextlib.suppress(OSError):  # the folder has other files, too, or does not exist
            folder.rmdir()


def _folder_of(output: Path, run: Result | _Run) -> Path:
    return output / "runs" / f"{run.workload}-{run.endpoints}-{run.policy}-{run.seed}"


def _write(path: Path, data: object) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(data)) + b"\n")
