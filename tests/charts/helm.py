"""helm, where it is: the one that the tests of the cluster build, or that of the system."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "manifests" / "charts"


@cache
def program() -> str:
    """Return helm's path; the test is skipped where there is none."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found = shutil.which("helm", path=assets) if assets else None
    if not (path := found or shutil.which("helm")):
        pytest.skip("no helm on the path, nor in KUBEBUILDER_ASSETS")
    return path


def template(chart: Path, *arguments: str, release: str = "llm-d-infpool") -> subprocess.CompletedProcess[str]:
    """Return what ``helm template`` has printed, and its status."""
    return subprocess.run(
        [program(), "template", release, str(chart), "--namespace", "llm", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
