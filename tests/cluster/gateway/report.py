"""Runs the conformance suite behind Istio in a cluster of its own, and writes the suite's report.

    python -m tests.cluster.gateway.report tierwise-conformance|lwepp REPORT [FLAG ...]

The first word is the picker's image; further ones are flags of the suite. It prints each test's outcome.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.cluster.cluster import cluster
from tests.cluster.environment import program
from tests.cluster.gateway import istio, suite


def conform(folder: Path, picker: str, *words: str) -> suite.Outcome:
    """Return the suite's outcome with the image ``picker`` where its manifests name their own. Raises: Unavailable."""
    for name in ("inference-conformance", "lwepp", "echo-basic"):
        program(name)
    (folder / "cluster").mkdir()
    with cluster(folder / "cluster", {"lwepp": picker}) as here:
        istio.start(here)
        suite.prepare(here)
        return suite.run(here, folder, *words)


def main(picker: str, target: str, *words: str) -> None:
    """Write the report as the file ``target``, and print what passed and what failed."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = conform(Path(folder), picker, *words)
        shutil.copy(Path(folder) / suite.REPORT, target)
    for name, result in outcome.tests.items():
        print(f"{result} {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
