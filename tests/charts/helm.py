"""helm, as `make test-cluster` builds it or the system's, and the objects that a chart renders to."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import environment

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "manifests" / "charts"
RELEASE, NAMESPACE = "llm-d-infpool", "llm"

Object = dict[str, Any]


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


def template(chart: Path, *arguments: str, release: str = RELEASE) -> subprocess.CompletedProcess[str]:
    """Return what ``helm template`` has printed, and its status."""
    return subprocess.run(
        [program(), "template", release, str(chart), "--namespace", NAMESPACE, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def objects(chart: Path, *arguments: str, release: str = RELEASE) -> list[Object]:
    """Return the objects that a chart renders to. Raises: AssertionError with helm's sentence."""
    done = template(chart, *arguments, release=release)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]
