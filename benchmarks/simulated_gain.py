"""What is tier awareness worth, on simulated fleets?

Each part is one ``tierwise simulate``; its tables replace those of the same part in ``results/simulate.md``. In virtual
time, so a busy machine is fine, but for the last two columns. All of it takes most of an hour of one core.

Run: ``python -m benchmarks.simulated_gain [PART ...]``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results" / "simulate.md"


class Part(NamedTuple):
    """One run of the tool, and why."""

    title: str
    words: str


PARTS = {
    "guides": Part(
        "All ways to choose, on the guides' workloads and agents",
        "--workload high-cache,low-cache,agents --seeds 10 --policy gpu-only,tiered,tiered-approximate,"
        "tiered-oversized,guide,affinity,lmetric,cost,cost-picker",
    ),
}


def main() -> None:
    """Run from the command line."""
    wanted = sys.argv[1:] or list(PARTS)
    for name in wanted:
        part = PARTS[name]
        with tempfile.TemporaryDirectory() as folder:
            words = ["simulate", *part.words.split(), "--plots=false", "--output", folder]
            subprocess.run([sys.executable, "-m", "epp.cli", *words], check=True)
            report = (Path(folder) / "report.md").read_text()
        before = RESULTS.read_text() if RESULTS.exists() else ""
        RESULTS.write_text(assembled(sections_of(before) | {part.title: body_of(report)}, head_of(report)))
        print(f"{RESULTS}: {part.title}", flush=True)


def head_of(report: str) -> str:
    """What every report begins with."""
    return report.partition("Made by `")[0].strip()


def body_of(report: str) -> str:
    """The rest of it, a level deeper."""
    body = "".join(report.partition("Made by `")[1:])
    return re.sub(r"^#", "##", body, flags=re.MULTILINE).strip()


def sections_of(text: str) -> dict[str, str]:
    """By title, those that are there."""
    titles = {part.title for part in PARTS.values()}
    found = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    return {title: body.strip() for title, body in zip(found[::2], found[1::2], strict=True) if title in titles}


def assembled(sections: dict[str, str], head: str) -> str:
    """The page, in the order of the parts."""
    ordered = [part.title for part in PARTS.values() if part.title in sections]
    return "\n\n".join([head, *(f"## {title}\n\n{sections[title]}" for title in ordered)]) + "\n"


if __name__ == "__main__":
    main()
