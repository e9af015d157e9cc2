"""Both commands as a restricted cluster runs them: no root, no capabilities, no new privileges, nothing writable.

The test makes such an environment itself, which takes root and the tools of util-linux; elsewhere it is skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from epp.ports.claim import claim
from tests.e2e.site.background import PATIENCE_S
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import LOOPBACK
from tests.e2e.test_command import Running

pytestmark = pytest.mark.e2e

NOBODY = 65534
WRITABLE = "/mnt"
ROOT = Path(__file__).parents[2]
BASE = Path(sys.base_prefix).resolve()
HIDDEN = next((str(folder) for folder in reversed(BASE.parents) if not folder.stat().st_mode & 1), "")
"""A folder above the interpreter that other users cannot enter, if there is one."""

PLACE = f"""
set -e
mount --make-rprivate /
if [ -n "{HIDDEN}" ]; then
  mount --bind {BASE} /media
  mount -t tmpfs -o mode=755 none {HIDDEN or "/nowhere"}
  mkdir -p {BASE}
  mount --bind /media {BASE}
fi
cut -d' ' -f5 /proc/self/mountinfo | while read -r place; do
  case "$place" in /proc*|/sys*) ;; *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;; esac
done
if [ -n "$WRITABLE" ]; then mount -t tmpfs -o mode=1777 none "$WRITABLE"; fi
for folder in / /tmp /var/tmp /dev/shm "$PWD"; do
  if touch "$folder/written" 2>/dev/null; then echo "$folder can be written"; exit 9; fi
done
exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def can_make_such_a_place() -> bool:
    if sys.platform != "linux" or os.geteuid() or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        return False
    tried = subprocess.run(
        ["unshare", "--mount", "sh", "-c", PLACE, "sh", sys.executable, "-c", "import msgspec"],
        capture_output=True, check=False, cwd=ROOT, env={**os.environ, "WRITABLE": ""},
    )  # fmt: skip
    return tried.returncode == 0


@pytest.fixture(scope="module", autouse=True)
def such_a_place() -> None:
    if not can_make_such_a_place():
        pytest.skip("takes root, unshare, setpriv, and an interpreter that others may run")


@contextmanager
def locked_down(*words: str, writable: str = "") -> Iterator[Running]:
    """Run ``tierwise`` in that environment and yield once it serves."""
    run = [sys.executable, "-c", "import sys; from epp.commandline.cli import main; sys.exit(main())", *words]
    environment = {**os.environ, "WRITABLE": writable, "TMPDIR": writable or "/tmp"}
    command = ["unshare", "--mount", "sh", "-c", PLACE, "sh", *run]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        running = Running(process, 0)
        try:
            running.until(lambda: re.search("serving ext-proc|welcome", running.said) or process.poll() is not None)
            assert process.poll() is None, running.said
            status = Path(f"/proc/{process.pid}/status").read_text()
            for line in (f"Uid:\t{NOBODY}", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
                assert line in status
            yield running
        finally:
            if process.poll() is None:
                process.kill()


def get(port: int, path: str) -> int:
    connection = HTTPConnection(LOOPBACK, port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_picker_needs_no_privilege_and_no_writable_place() -> None:
    ports = [f"--{name}=0" for name in ("grpc-port", "grpc-health-port", "metrics-port", "debug-port")]
    with locked_down("serve", f"--host={LOOPBACK}", f"--endpoint={LOOPBACK}:9", *ports) as picker:
        served = re.search(r"metrics on (\d+)", picker.said)
        assert served
        assert get(int(served[1]), "/readyz") == 200
        assert get(int(served[1]), "/metrics") == 200
        assert picker.end(signal.SIGTERM) == 0
        assert "Traceback" not in picker.said


def test_the_router_needs_no_privilege_and_one_writable_folder(engines: list[Engine]) -> None:
    port = claim(LOOPBACK, 0, "--port")
    flags = [f"--host={LOOPBACK}", f"--port={port}", "--admin-port=0", "--metrics-port=0", "--debug-port=0"]
    with locked_down("standalone", f"--endpoint={engines[0].address}", *flags, writable=WRITABLE) as router:
        assert get(port, "/v1/models") == 200
        assert router.end(signal.SIGTERM) == 0
        assert "Traceback" not in router.said
