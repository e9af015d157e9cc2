"""What does ``make demo`` show when it is repeated, and how long does it take from a fresh clone?

Clones this checkout's last commit, sets it up as ``make demo`` does, and runs the demo ``--runs`` times. Prints the
seconds and the CPU seconds of the set-up and of the first run, and the README's table: medians, with the least and the
greatest of all runs where they differ; ×: the multiple of round robin's in the same run.

Run on a quiet machine: ``python -m benchmarks.picker.demo_runs [--runs 3]``.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from epp.lab.demo.result import Result

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Took:
    """How long a command took, on the clock and of CPU time."""

    wall_s: float
    cpu_s: float


def timed(command: Sequence[str | Path], folder: Path) -> Took:
    """Run ``command`` in ``folder``, its output on standard error. Raises: CalledProcessError when it fails."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=folder, stdout=sys.stderr, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(time.monotonic() - began, cpu_s)


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Return the median of ``values``, and the least and the greatest where they differ."""
    middle, least, greatest = (form(value) for value in (statistics.median(values), min(values), max(values)))
    return middle if least == greatest else f"{middle} ({least} to {greatest})"


def table(runs: Sequence[Sequence[Result]]) -> Iterator[str]:
    """Yield the rows of the README's table, in Markdown. ``runs`` have the same ways to choose, the baseline first."""
    yield "| | mean TTFT | P90 TTFT | throughput | hits GPU / CPU | misses |"
    yield "|---|---|---|---|---|---|"
    for place, first in enumerate(runs[0]):
        found, base = [run[place] for run in runs], [run[0] for run in runs]
        if place == 0:
            cells = [
                spread([result.mean_ttft_s * 1000 for result in found], "{:.0f}".format) + " ms",
                spread([result.p90_ttft_s * 1000 for result in found], "{:.0f}".format) + " ms",
                spread([result.requests_per_s for result in found], "{:.1f}".format) + " requests/s",
            ]
        else:
            cells = [
                "×" + spread([getattr(one, name) / getattr(two, name) for one, two in zip(found, base, strict=True)],
                             "{:.2f}".format)
                for name in ("mean_ttft_s", "p90_ttft_s", "requests_per_s")
            ]  # fmt: skip
        gpu, cpu, misses = (
            spread([100 * getattr(result, name) for result in found], "{:.0f}".format)
            for name in ("gpu_share", "cpu_share", "miss_share")
        )
        yield "| " + " | ".join([first.title, *cells, f"{gpu} % / {cpu} %", f"{misses} %"]) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="how often the demo runs (default 3)")
    count = parser.parse_args(arguments).runs
    with tempfile.TemporaryDirectory(prefix="tierwise-demo-runs-") as name:
        clone = Path(name) / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        took = {"set-up": timed(["make", "--silent", ".venv/.demo-ready"], clone)}
        runs: list[list[Result]] = []
        for number in range(count):
            out = Path(name) / f"{number}.json"
            run = timed([clone / ".venv/bin/tierwise", "demo", f"--json={out}"], clone)
            took.setdefault("first run", run)
            runs.append(msgspec.json.decode(out.read_bytes(), type=list[Result]))
    took["both"] = Took(sum(one.wall_s for one in took.values()), sum(one.cpu_s for one in took.values()))
    print(f"{count} runs, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end\n")
    for what, one in took.items():
        print(f"{what}: {one.wall_s:.0f} s, {one.cpu_s:.0f} s of CPU")
    print("", *table(runs), sep="\n")
    if failed := sum(sum(result.errors.values()) for run in runs for result in run):
        print(f"\n{failed} requests FAILED")


if __name__ == "__main__":
    main()
