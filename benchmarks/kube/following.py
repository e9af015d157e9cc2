"""What does it cost to follow the pods of a real API server, and how soon does a pick obey a change?

Three processes are measured, each by its own CPU time: one follows pods, one a file with the same endpoints, and one
only reads the same answers by aiohttp and TLS, which is the floor. The API server and etcd run beside them on the same
cores.

Run: ``python -m benchmarks.kube.following [--pods 1000] [--bytes 9000] [--seconds 20] [--outage 60] [--json]``. It
needs what ``make test-cluster`` needs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.kube.objects import FEW, PART, Writer
from benchmarks.rig.machine import machine
from tests.cluster.control_plane import ControlPlane, control_plane
from tests.cluster.environment import Unavailable

CHANGES_PER_S = 100
SETTLE_S = 2.0


@dataclass(frozen=True)
class Row:
    """One figure beside its target."""

    what: str
    value: float
    unit: str
    target: float | None = None
    """None for what explains the other figures: a floor, or how busy the API server was."""

    @property
    def missed(self) -> bool:
        """Whether the figure is worse than the target."""
        return self.target is not None and self.value > self.target


class Measured:
    """A process that follows one source. An async context manager, which ends it."""

    def __init__(self, source: str, folder: Path, port: int, *more: str) -> None:
        self._words = (sys.executable, "-m", "benchmarks.kube.follower", source, str(folder), str(port), *more)

    async def __aenter__(self) -> Self:
        """Start the process, without waiting for it."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._words, stdin=pipe, stdout=pipe, limit=1 << 24)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close its input, and wait until it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def ask(self, command: str) -> dict[str, Any]:
        """Send a command, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def first_list(folder: Path, plane: ControlPlane, pods: int, times: int = 5) -> list[Row]:
    """Measure the way from the start to the whole pool, which a picker goes once."""
    walls, cpus, turns, floors = list[float](), list[float](), list[float](), list[float]()
    for _ in range(times):
        async with Measured("pods", folder, plane.port) as one:
            answer = await one.ask(f"loaded {pods}")
            walls.append(answer["wall_s"])
            cpus.append(answer["cpu_s"])
        async with Measured("bare", folder, plane.port) as one:
            floors.append((await one.ask("loaded 0"))["cpu_s"])
        async with Measured("pods", folder, plane.port, "--turns") as one:
            turns.append((await one.ask(f"loaded {pods}"))["longest_turn_s"])
    return [
        Row("first list to the whole pool", statistics.median(walls), "s", 2.0),
        Row("CPU of it", statistics.median(cpus) * 1e3, "ms", 60.0),
        Row("  of which aiohttp and TLS alone", statistics.median(floors) * 1e3, "ms"),
        Row("longest turn of the event loop in it, CPU", statistics.median(turns) * 1e3, "ms", 5.0),
    ]


async def at_rest_and_changing(
    one: Measured, bare: Measured, writer: Writer, plane: ControlPlane, pods: int, seconds: float, outage_s: float
) -> list[Row]:
    """Measure a picker that follows: nothing changes, pods change, and the API server is away for a while."""
    await asyncio.sleep(SETTLE_S)
    await one.ask("begin")
    await asyncio.sleep(seconds)
    rest = await one.ask("end")
    await asyncio.gather(one.ask("begin"), bare.ask("begin"))
    sent = await writer.changes(range(pods), CHANGES_PER_S, seconds)
    changing, floor = await asyncio.gather(one.ask("end"), bare.ask("end"))
    if floor["trouble"]:
        raise RuntimeError(floor["trouble"])
    await asyncio.sleep(SETTLE_S)
    delays, floor_delays = [
        [seen[number] - at for number, at in sent.items() if number in seen]
        for seen in [(await each.ask("end"))["seen"] for each in (one, bare)]
    ]
    share = 100 * CHANGES_PER_S / len(sent)  # a busy API server takes fewer changes a second
    # a change is not seen on its own where the same pod changed again before it was applied
    rows = [
        Row("CPU while nothing changes", 100 * rest["cpu_s"] / rest["wall_s"], "% of a core", 0.2),
        Row(f"CPU at {CHANGES_PER_S} changes a second", changing["cpu_s"] * share, "% of a core", 2),
        Row("  of which aiohttp and TLS alone", floor["cpu_s"] * share, "% of a core"),
        Row("changes a second that the API server took", len(sent) / changing["wall_s"], "", None),
        Row("from a change's request to picks that obey it, p99", quantile(delays, 0.99) * 1e3, "ms", 100.0),
        Row("  until aiohttp and TLS alone have it, p99", quantile(floor_delays, 0.99) * 1e3, "ms"),
        Row("until picks obey it, the longest", max(delays) * 1e3, "ms", 1000.0),
        Row("changes that no pick obeyed", len(sent) - len(delays), "", 0),
    ]
    if outage_s:
        rows.append(await after_an_outage(one, writer, plane, outage_s))
    return rows


async def after_an_outage(one: Measured, writer: Writer, plane: ControlPlane, seconds: float) -> Row:
    """Kill the API server, start it again, and measure from the first change that it accepts."""
    plane.kill("kube-apiserver")
    await asyncio.sleep(seconds)
    await asyncio.to_thread(plane.start_api_server)
    back = time.clock_gettime(time.CLOCK_MONOTONIC)
    await one.ask("begin")
    number, _ = await writer.change(0)
    while number not in (seen := (await one.ask("end"))["seen"]):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return Row(f"after {seconds:g} s without the API, from its return to picks", seen[number] - back, "s", 2.0)


async def measure(plane: ControlPlane, folder: Path, given: argparse.Namespace) -> list[Row]:
    """Return a row for every figure."""
    plane.allow("default", "picker", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}])
    (folder / "ca.crt").write_bytes(plane.authority.read_bytes())
    (folder / "token").write_text(plane.token_for("default", "picker"))
    async with Writer(plane) as writer:
        print(f"making {given.pods} pods of {given.bytes} bytes ...", file=sys.stderr)
        addresses = await writer.make(given.pods, given.bytes)
        listed = [dict(zip(("address", "port"), address.split(":"), strict=True)) for address in addresses]
        named = [{**one, "name": f"vllm-{n}-rank-0", "labels": {"app": "vllm"}} for n, one in enumerate(listed)]
        (folder / "endpoints.json").write_text(json.dumps({"endpoints": named}))
        rows = await first_list(folder, plane, given.pods)
        few = f"app=vllm,{PART}={FEW}"
        async with (
            Measured("file", folder, plane.port) as from_file,
            Measured("pods", folder, plane.port, "--selector", few) as of_few,
            Measured("pods", folder, plane.port) as from_pods,
            Measured("bare", folder, plane.port) as bare,
        ):
            wanted = {from_file: given.pods, of_few: given.pods // 10, from_pods: given.pods}
            memory = list[int]()
            for one, count in wanted.items():
                await one.ask(f"loaded {count}")
                memory.append((await one.ask("memory"))["bytes"])
            rows.append(Row("memory above the same endpoints from a file", (memory[2] - memory[0]) / 2**20, "MiB", 20))
            each = (memory[2] - memory[1]) / (given.pods - given.pods // 10)
            rows.append(Row("memory of one pod more", each / 1024, "KiB", 10.0))
            await bare.ask("loaded 0")
            return rows + await at_rest_and_changing(
                from_pods, bare, writer, plane, given.pods, given.seconds, given.outage
            )


def table(rows: list[Row], given: argparse.Namespace) -> str:
    """Return the figures as text, one a line."""
    lines = [f"{given.pods:,} pods of {given.bytes:,} bytes; {machine()}", ""]
    for row in rows:
        verdict = "" if row.target is None else f"target {row.target:g}: {'MISSED' if row.missed else 'met'}"
        lines.append(f"{row.what:<60} {row.value:>9.3f} {row.unit:<12} {verdict}".rstrip())
    return "\n".join(lines)


def main() -> int:
    """Measure and print. Exit status 3: the API server cannot be had here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=9000, help="of one pod as JSON")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each stretch lasts")
    parser.add_argument("--outage", type=float, default=60.0, help="seconds without the API server; 0 leaves it out")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch, control_plane(Path(scratch)) as plane:
            folder = Path(scratch) / "picker"
            folder.mkdir()
            rows = asyncio.run(measure(plane, folder, given))
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 3
    print(json.dumps([asdict(row) for row in rows]) if given.json else table(rows, given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
