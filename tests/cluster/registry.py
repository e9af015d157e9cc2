"""An OCI registry as a process, which keeps what it is given in memory."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.environment import program
from tests.cluster.node.network import GATEWAY, TIED

PORT = 5000
CONFIGURATION = f"""
version: 0.1
log: {{level: error}}
storage: {{inmemory: {{}}}}
http: {{addr: "{GATEWAY}:{PORT}"}}
"""


@contextmanager
def registry(here: Cluster, folder: Path) -> Iterator[str]:
    """Run a registry in the cluster's network, and yield its address. Raises: Unavailable."""
    binary = program("registry")
    (folder / "registry.yaml").write_text(CONFIGURATION)
    with (folder / "registry.log").open("ab") as log:
        process = subprocess.Popen([*TIED, str(binary), "serve", str(folder / "registry.yaml")], stdout=log, stderr=log)
    try:
        here.until(_answers, (folder / "registry.log").read_text)
        yield f"{GATEWAY}:{PORT}"
    finally:
        process.kill()
        process.wait()


def _answers() -> bool:
    try:
        with urllib.request.urlopen(f"http://{GATEWAY}:{PORT}/v2/", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
