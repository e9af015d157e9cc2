"""The commands of the README, pasted into a shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
OWN_PORTS = ("8000", "8001", "8081")
REST = " --host 127.0.0.1 --metrics-port 0 --admin-port 0 --debug-port 0 &"


def neighbours() -> tuple[int, int]:
    """Return two free ports, the second after the first."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            first: int = one.getsockname()[1]
            try:
                with socket.create_server(("127.0.0.1", first + 1)):
                    return first, first + 1
            except OSError:
                continue


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def on_free_ports(script: str) -> str:
    """Return ``script`` with free ports, also in place of the default ones."""
    ports = dict(zip(OWN_PORTS, map(str, (*neighbours(), free())), strict=True))
    script = re.sub(r"\b(8000|8001|8081)\b", lambda found: ports[found[0]], script)
    return re.sub(r"(tierwise standalone .*) &$", rf"\1 --port {ports['8081']}{REST}", script, flags=re.MULTILINE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_lines_for_simulated_endpoints_work_when_they_are_pasted_together() -> None:
    blocks = re.findall(r"^```console\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "tierwise sim" in block)
    pasted = on_free_ports(re.sub(r"^\$ ", "", block, flags=re.MULTILINE))
    script = f'tierwise() {{ exec {sys.executable} -m epp.commandline.cli "$@"; }}\n{pasted}\nkill $(jobs -p); wait'
    ran = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    answers = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == 1, ran.stdout + ran.stderr
    assert json.loads(answers[0].partition("}tierwise")[0])["choices"][0]["text"]
