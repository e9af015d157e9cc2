"""What is tier awareness worth, on simulated fleets?

Each part is one ``tierwise simulate``; its tables replace those of the same part in ``results/simulate.md``. Time is
virtual, so a busy machine changes nothing but the last two columns. All parts take most of an hour of one core.

Run in the repository's root: ``python -m benchmarks.simulator.simulated_gain [PART ...]``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parents[1] / "results" / "simulate.md"


class Part(NamedTuple):
    """One run of ``tierwise simulate``: its title on the page, and its arguments."""

    title: str
    words: str


WEIGHTS = "tiered,gpu-only,tiered-approximate,tiered-oversized"
PARTS = {
    "guides": Part(
        "Where the CPU tier holds nearly all: the guide to CPU offloading, and agents",
        f"--workload high-cache,low-cache,agents --seeds 10 --policy {WEIGHTS},guide,affinity,lmetric,cost,cost-picker",
    ),
    "ladder": Part(
        "The same under growing load",
        "--workload ladder-16k --seeds 3 --policy tiered,gpu-only,tiered-approximate,cost",
    ),
    "documents": Part(
        "Where GPU and CPU memory together are too small: documents",
        f"--workload documents --seeds 10 --policy {WEIGHTS},tiered-default,guide,cost,cost-approximate",
    ),
    "storage": Part(
        "Where they are too small: the guide to shared storage, without its storage",
        f"--workload storage-50k,storage-70k,storage-30k --seeds 10 --policy {WEIGHTS},cost",
    ),
    "prices": Part(
        "Prices against 2:2:1:1, with more seeds",
        "--workload storage-30k --seeds 40 --policy tiered,cost",
    ),
    "ladder10": Part(
        "Prices against 2:2:1:1 under growing load, with more seeds",
        "--workload ladder-16k --seeds 10 --policy tiered,cost",
    ),
    "pickers": Part(
        "Documents, with four pickers",
        f"--workload documents --pickers 4 --seeds 5 --policy {WEIGHTS},cost,cost-approximate,cost-picker",
    ),
    "past": Part(
        "Documents, with clients that go past the picker",
        "--workload documents --past-pickers 0.25 --seeds 5 --policy tiered,tiered-approximate,cost,cost-approximate",
    ),
    "high64": Part(
        "64 endpoints",
        f"--workload high-cache --endpoints 64 --seeds 5 --policy {WEIGHTS},guide,cost,cost-picker",
    ),
    "agents64": Part(
        "64 endpoints, agents",
        "--workload agents --endpoints 64 --seeds 3 --policy tiered,gpu-only,cost",
    ),
    "documents64": Part(
        "64 endpoints, documents",
        f"--workload documents --endpoints 64 --seeds 3 --policy {WEIGHTS},cost",
    ),
    "half": Part(
        "Half as many requests, to compare with 1,000 endpoints",
        "--workload benchmarks/simulator/high-cache-half.yaml --written-for 8 --endpoints 8,64 --seeds 5"
        " --policy tiered,gpu-only,cost",
    ),
    "high1000": Part(
        "1,000 endpoints",
        "--workload benchmarks/simulator/high-cache-half.yaml --written-for 8 --endpoints 1000 --seeds 3"
        " --policy tiered,gpu-only,cost",
    ),
    "capacity1000": Part(
        "1,000 endpoints: horizons and capacities",
        "--workload benchmarks/simulator/high-cache-half.yaml --written-for 8 --endpoints 1000 --seeds 1"
        " --policy tiered,tiered-approximate,tiered-oversized",
    ),
}


def main() -> None:
    """Run from the command line."""
    wanted = sys.argv[1:] or list(PARTS)
    for name in wanted:
        part = PARTS[name]
        with tempfile.TemporaryDirectory() as folder:
            words = ["simulate", *part.words.split(), "--plots=false", "--output", folder]
            subprocess.run([sys.executable, "-m", "epp.commandline.cli", *words], check=True)
            report = (Path(folder) / "report.md").read_text()
        before = RESULTS.read_text() if RESULTS.exists() else ""
        RESULTS.write_text(assembled(sections_of(before) | {part.title: body_of(report)}, head_of(report)))
        print(f"{RESULTS}: {part.title}", flush=True)


def head_of(report: str) -> str:
    """Return the text that every report begins with."""
    return report.partition("Made by `")[0].strip()


def body_of(report: str) -> str:
    """Return the rest of the report, with headings a level deeper and sentences in lines of at most 116 characters."""
    body = "".join(report.partition("Made by `")[1:])
    body = re.sub(r"^#", "##", body, flags=re.MULTILINE).strip()
    return "\n".join(line if line.startswith(("|", "#")) else folded(line) for line in body.split("\n"))


def folded(line: str) -> str:
    """Return ``line`` in lines of at most 116 characters, as the pages have them."""
    return textwrap.fill(line, 116, break_long_words=False, break_on_hyphens=False)


def sections_of(text: str) -> dict[str, str]:
    """Return the sections of the page by title."""
    titles = {part.title for part in PARTS.values()}
    found = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    return {title: body.strip() for title, body in zip(found[::2], found[1::2], strict=True) if title in titles}


def assembled(sections: dict[str, str], head: str) -> str:
    """Return the page with its sections in the order of the parts."""
    ordered = [part.title for part in PARTS.values() if part.title in sections]
    return "\n\n".join([head, *(f"## {title}\n\n{sections[title]}" for title in ordered)]) + "\n"


if __name__ == "__main__":
    main()
