"""How much CPU does a cluster add to the start of ``tierwise serve``?

Each pair of runs starts the picker twice, with fixed endpoints and with the same endpoints as pods of a real API
server, in an order that is drawn; CPU time is that of the whole process until ``/readyz`` answers with 200. In the
second run the picker has a pod's credentials in a mount namespace of its own, so it takes root.

Run: ``python -m benchmarks.kube.start [--pods 1000] [--pairs 7] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.kube.objects import Writer
from benchmarks.rig.interval import shift_interval
from benchmarks.rig.machine import machine
from tests.cluster.control_plane import ControlPlane, control_plane, free_port
from tests.cluster.environment import Unavailable
from tests.cluster.test_picker import ACCOUNT, MOUNTED, page

TARGET_S = 0.3
PATIENCE_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
CONFIG = Path(__file__).parents[2] / "manifests" / "config" / "tiered.yaml"


def cpu_until_ready(source: list[str], before: list[str], environment: dict[str, str]) -> float:
    """Start a picker with ``source``. Returns the CPU seconds until it was ready."""
    ports = [free_port() for _ in range(3)]
    names = ("--grpc-port", "--grpc-health-port", "--metrics-port")
    flags = [word for name, port in zip(names, ports, strict=True) for word in (name, str(port))]
    command = [*before, str(Path(sys.executable).with_name("tierwise")), "serve", *source, *flags, "--debug=false"]
    process = subprocess.Popen(
        [*command, f"--config-file={CONFIG}", "--v=0"], env={**os.environ, **environment}, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not page(ports[2], "/readyz").startswith("ready"):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"not ready in {PATIENCE_S:g} s: {page(ports[2], '/readyz')}")
            time.sleep(0.02)
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    finally:
        process.terminate()
        process.wait()


def measure(plane: ControlPlane, folder: Path, pods: int, pairs: int) -> list[float]:
    """Return the CPU seconds that the cluster added, by pair."""

    async def make() -> list[str]:
        async with Writer(plane) as writer:
            return await writer.make(pods, 9000)

    plane.allow("default", "picker", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}])
    (folder / "ca.crt").write_bytes(plane.authority.read_bytes())
    (folder / "token").write_text(plane.token_for("default", "picker"))
    listed = [dict(zip(("address", "port"), one.split(":"), strict=True)) for one in asyncio.run(make())]
    fixed = [word for one in listed for word in ("--endpoint", f"{one['address']}:{one['port']}")]
    mounted = ["unshare", "-m", "sh", "-euc", MOUNTED, "sh", ACCOUNT, str(folder)]
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(plane.port)}
    selected = ["--endpoint-selector=app=vllm", "--endpoint-target-ports=8000", "--pool-namespace=default"]
    added = list[float]()
    for _ in range(pairs):
        runs = {"fixed": (fixed, list[str](), dict[str, str]()), "pods": (selected, mounted, environment)}
        found = dict[str, float]()
        for name in random.sample(sorted(runs), 2):
            found[name] = cpu_until_ready(*runs[name])
        added.append(found["pods"] - found["fixed"])
        print(f"fixed {found['fixed']:.2f} s, pods {found['pods']:.2f} s", file=sys.stderr)
    return added


def main() -> int:
    """Measure and print. Exit status 3: the API server cannot be had here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("this takes root: the picker gets a pod's credentials in a mount namespace", file=sys.stderr)
        return 3
    try:
        with tempfile.TemporaryDirectory() as scratch, control_plane(Path(scratch)) as plane:
            folder = Path(scratch) / "picker"
            folder.mkdir()
            found = shift_interval(measure(plane, folder, given.pods, given.pairs))
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 3
    if given.json:
        print(json.dumps({"added_s": found.median, "low_s": found.low, "high_s": found.high}))
        return 0
    verdict = "MISSED" if found.median > TARGET_S else "met"
    print(f"{given.pods:,} pods, {given.pairs} pairs; {machine()}\n")
    print(
        f"CPU that the cluster adds to the start: {found.median:.2f} s ({found.low:.2f} to {found.high:.2f}), ", end=""
    )
    print(f"target {TARGET_S:g} s: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
