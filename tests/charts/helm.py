"""helm, where it is: the one that the tests of the cluster build, or that of the system."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.cluster import environment

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "manifests" / "charts"


@cache
def program() -> str:
    """Return helm's path; the test is skipped where there is none."""
    try:
        return str(environment.program("helm"))
    except environment.Unavailable:
        found = shutil.which("helm")
    if found is None:
        pytest.skip("helm is not here; `make test-cluster` builds it where Go is")
    return found


def template(chart: Path, *arguments: str, release: str = "llm-d-infpool") -> subprocess.CompletedProcess[str]:
    """Return what ``helm template`` has printed, and its status."""
    return subprocess.run(
        [program(), "template", release, str(chart), "--namespace", "llm", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
