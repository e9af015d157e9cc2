"""Upstream's charts, out of the zips of their Go modules: for comparisons, never committed.

Go checks what it downloads against the public checksum database and keeps it in its own cache. What the module proxy
does not have is in ``NOT_OBTAINABLE``, with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.charts.helm import program
from tests.cluster.environment import fetched

INFERENCE = "sigs.k8s.io/gateway-api-inference-extension"
LIBRARY = "inference-extension"
CHARTS = {
    ("inferencepool", "v1.2.0"): INFERENCE,
    ("inferencepool", "v1.5.0"): INFERENCE,
    ("standalone", "v1.5.0"): INFERENCE,
}
"""Charts and versions, and the module of each."""
NOT_OBTAINABLE = {
    f"{INFERENCE} v1.2.0-rc.1": "not on the module proxy; v1.2.0, of which it is the candidate, is compared instead",
    "github.com/llm-d/llm-d-router v0.9.0": "not on the module proxy, in no version",
    "github.com/llm-d/llm-d bd9fbb5, 7808df6, 7edda66": "not on the module proxy, in no version",
}


@cache
def module(version: str) -> Path:
    """Return the folder of the module. Raises: Unavailable."""
    return fetched(INFERENCE, version)


def chart(name: str, version: str, into: Path) -> Path:
    """Return a copy of upstream's chart in ``into`` that helm can render. Raises: Unavailable."""
    source = module(version) / "config" / "charts"
    target = into / version / name
    if target.is_dir():
        return target
    for each in (name, "epplib"):
        if (source / each).is_dir():
            shutil.copytree(source / each, into / version / each, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for path in (into / version).rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)  # a module's folder is read-only
    if "dependencies:" in (target / "Chart.yaml").read_text():
        subprocess.run([program(), "dependency", "build", str(target)], capture_output=True, check=True, timeout=60)
    return target
