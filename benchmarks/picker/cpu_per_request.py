"""How much CPU does the picker use per request, all its work done, over a bare ``grpc.aio`` echo that does none?

Both sit behind a real Envoy under the same closed-loop load, in turns within one run, so that the ratio holds when the
machine's speed drifts. The echo (``benchmarks.rig.grpc_echo``) sees every body, parses it with ``json.loads`` and
answers a fixed endpoint. The picker is the shipped command: ``tierwise standalone`` (its own Envoy, buffered bodies,
lean), and ``tierwise serve`` behind an Envoy in full duplex with full response processing. What is counted is the
ext-proc process alone, with its scrapes of every endpoint: the kernel's nanoseconds on CPU, all threads.

With ``--base CHECKOUT``, the picker of another checkout runs in the same run, too, and each figure of this one is
divided by that of the base in the same round. Every other round runs backwards, so that a drift of the machine's speed
cancels out. The last columns are the median of the rounds' quotients, and the lowest and the highest.

Run: ``python -m benchmarks.picker.cpu_per_request [--seconds 3] [--rounds 3] [--only "1 KB;120 KB"] [--json]
[--base CHECKOUT]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from benchmarks.rig.load import drive, http_request
from epp.ports.claim import claim
from epp.standalone.binary import find_envoy
from epp.standalone.endpoints import write_endpoints
from epp.standalone.proxy import Proxy
from epp.standalone.settings import ProxySettings, RequestMode, ResponseMode

LOOPBACK = "127.0.0.1"
FEW, MANY = 4, 100
OF_BASE = ", base"


@dataclass(frozen=True)
class Workload:
    """What clients send. ``stream``: the answer comes in 100 pieces, 5 ms apart."""

    name: str
    body_bytes: int
    endpoints: int = FEW
    stream: bool = False
    connections: int = 16


WORKLOADS = (
    Workload("1 KB", 1_000),
    Workload("1 KB, 100 endpoints", 1_000, endpoints=MANY),
    Workload("120 KB", 120_000),
    Workload("400 KB", 400_000),
    Workload("1 KB, streamed", 1_000, stream=True, connections=64),
)
TARGETS = {
    ("standalone", "1 KB"): 0.17,
    ("standalone", "1 KB, 100 endpoints"): 0.25,
    ("standalone", "120 KB"): 0.3,
    ("standalone", "400 KB"): 0.45,
    ("standalone", "1 KB, streamed"): 0.025,
    ("full duplex", "1 KB"): 0.25,
    ("full duplex", "120 KB"): 0.35,
    ("full duplex", "1 KB, streamed"): 0.2,
}


@dataclass
class Row:
    """One figure. Units: microseconds of CPU per request; ``ratio`` over the echo of the same workload."""

    workload: str
    subject: str
    cpu_us: float
    ratio: float
    target: float | None
    requests_per_s: float
    p99_ms: float
    over_base: tuple[float, float, float] | None = None
    """The CPU time over that of the base: median, lowest and highest of the rounds."""


@dataclass(frozen=True)
class Subject:
    """A process whose CPU is counted, and the port where its proxy takes requests."""

    name: str
    pid: int
    port: int


def bodies(size: int, count: int = 48) -> list[bytes]:
    """Chats that share half of their prompt in groups of eight, as agents' do."""
    made = []
    for i in range(count):
        system = f"group {i // 8} " + "You are a careful assistant. " * (size // 2 // 29)
        user = f"question {i} " + "Explain the following in detail: " * ((size - len(system)) // 33)
        made.append(json.dumps({"model": "m", "messages": [
            {"role": "system", "content": system}, {"role": "user", "content": user}]}).encode())  # fmt: skip
    return made


def cpu_ns(pid: int) -> int:
    """Time that all threads of ``pid`` have spent on a CPU."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total


def made(folder: Path) -> Path:
    """Make ``folder``, which must not exist yet."""
    folder.mkdir()
    return folder


def printed(log: Path) -> str:
    """What a process has written."""
    return log.read_text()


@asynccontextmanager
async def child(
    *command: str, ready: str, log: Path, checkout: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A module of ``checkout``, or of this one, running once ``ready`` stands in its output; ended by its id."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *command, stdout=output, stderr=output, cwd=checkout
        )
    try:
        async with asyncio.timeout(60):
            while ready not in (text := printed(log)):
                if process.returncode is not None:
                    raise RuntimeError(f"{command[0]} ended:\n{text[-2000:]}")
                await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


@asynccontextmanager
async def gateway(folder: Path, picker_port: int, addresses: Sequence[str]) -> AsyncIterator[int]:
    """An Envoy in full duplex with full response processing, as gateways are; yields its port."""
    port = claim(LOOPBACK, 0, "port")
    write_endpoints(folder / "endpoints.json", addresses)
    proxy = Proxy(
        find_envoy(None),
        ProxySettings(
            host=LOOPBACK, port=port, picker_port=picker_port, endpoints_file=folder / "endpoints.json",
            admin_port=claim(LOOPBACK, 0, "port"), request_mode=RequestMode.DUPLEX, response_mode=ResponseMode.FULL,
            sample_rate=0.0,
        ),
        folder,
    )  # fmt: skip
    await proxy.start()
    try:
        yield port
    finally:
        await proxy.stop(1.0)


@asynccontextmanager
async def subjects(folder: Path, workload: Workload, base: Path | None) -> AsyncIterator[list[Subject]]:
    """The echo, and the picker's two configurations of this checkout and of ``base``, each behind its own Envoy."""
    upstream, echo_port = (claim(LOOPBACK, 0, "port") for _ in range(2))
    addresses = [f"127.0.0.{i + 1}:{upstream}" for i in range(workload.endpoints)]
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(child("benchmarks.rig.upstream", str(upstream), ready="ready", log=folder / "upstream.log"))
        echo = await enter(
            child("benchmarks.rig.grpc_echo", str(echo_port), addresses[0], ready="ready", log=folder / "echo.log")
        )
        echo_proxy = await enter(gateway(made(folder / "echo"), echo_port, addresses))
        found = [Subject("grpc.aio echo", echo.pid, echo_proxy)]
        found += await enter(pickers(made(folder / "this"), addresses))
        if base is not None:
            found += await enter(pickers(made(folder / "base"), addresses, base))
        yield found


@asynccontextmanager
async def pickers(folder: Path, addresses: Sequence[str], base: Path | None = None) -> AsyncIterator[list[Subject]]:
    """The picker's two configurations, of this checkout or of ``base``."""
    command = "epp.commandline.cli" if base is None or (base / "epp/commandline").is_dir() else "epp.cli"
    config = folder / "picker.yaml"
    config.write_text(CONFIG)
    flags = [f"--endpoint={','.join(addresses)}", "--config-file", str(config), "--metrics-port=0", "--host", LOOPBACK]
    listen, grpc_port = (claim(LOOPBACK, 0, "port") for _ in range(2))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        standalone = await enter(
            child(command, "standalone", *flags, f"--port={listen}", "--admin-port=0",
                  ready="are welcome", log=folder / "standalone.log", checkout=base)
        )  # fmt: skip
        served = await enter(
            child(command, "serve", *flags, f"--grpc-port={grpc_port}", "--grpc-health-port=0",
                  "--secure-serving=false", ready="serving ext-proc", log=folder / "serve.log", checkout=base)
        )  # fmt: skip
        duplex_proxy = await enter(gateway(made(folder / "duplex"), grpc_port, addresses))
        which = "" if base is None else OF_BASE
        yield [
            Subject(f"standalone{which}", standalone.pid, listen),
            Subject(f"full duplex{which}", served.pid, duplex_proxy),
        ]


CONFIG = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: approx-prefix-cache-producer, name: gpu-producer}
- {type: approx-prefix-cache-producer, name: cpu-producer, parameters: {autoTune: false, lruCapacityPerServer: 41000}}
- {type: prefix-cache-scorer, name: gpu, parameters: {prefixMatchInfoProducerName: gpu-producer}}
- {type: prefix-cache-scorer, name: cpu, parameters: {prefixMatchInfoProducerName: cpu-producer}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: gpu, weight: 1}
  - {pluginRef: cpu, weight: 1}
"""


async def measure(workload: Workload, seconds: float, rounds: int, base: Path | None = None) -> list[Row]:
    """Drive each subject in turn, ``rounds`` times; medians."""
    requests = [http_request(body, stream=workload.stream) for body in bodies(workload.body_bytes)]
    with tempfile.TemporaryDirectory(prefix="tierwise-bench-") as name:
        async with subjects(Path(name), workload, base) as all_subjects:
            costs: dict[str, list[float]] = {s.name: [] for s in all_subjects}
            rates: dict[str, list[float]] = {s.name: [] for s in all_subjects}
            slow: dict[str, list[float]] = {s.name: [] for s in all_subjects}
            for turn in range(rounds + 1):  # the first warms up
                for subject in all_subjects[:: 1 if turn % 2 else -1]:
                    before = cpu_ns(subject.pid)
                    tally = await drive(
                        subject.port, requests, connections=workload.connections, seconds=seconds if turn else 1.0
                    )
                    if tally.refused or tally.broken or not tally.answered:
                        raise RuntimeError(f"{subject.name}, {workload.name}: {tally}")
                    if turn:
                        costs[subject.name].append((cpu_ns(subject.pid) - before) / 1000 / tally.answered)
                        rates[subject.name].append(tally.answered / seconds)
                        slow[subject.name].append(statistics.quantiles(tally.latencies_s, n=100)[98] * 1000)
                    print(".", end="", file=sys.stderr, flush=True)
    print(f" {workload.name}", file=sys.stderr)
    median = {subject: statistics.median(values) for subject, values in costs.items()}
    return [
        Row(
            workload.name, subject, round(cost, 1), round(cost / median["grpc.aio echo"], 3),
            TARGETS.get((subject, workload.name)), round(statistics.median(rates[subject])),
            round(statistics.median(slow[subject]), 1), over_base(costs[subject], costs.get(subject + OF_BASE)),
        )
        for subject, cost in median.items()
    ]  # fmt: skip


def over_base(costs: Sequence[float], base: Sequence[float] | None) -> tuple[float, float, float] | None:
    """The median, the lowest and the highest quotient of two subjects' costs in the same round."""
    if base is None:
        return None
    quotients = [cost / other for cost, other in zip(costs, base, strict=True)]
    return round(statistics.median(quotients), 3), round(min(quotients), 3), round(max(quotients), 3)


def show(rows: Sequence[Row], base: str = "") -> None:
    """Print the table, with a column for the commit ``base`` where that was measured, too."""
    where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"CPU of the ext-proc process behind Envoy; {where}.")
    print("Ratio: over the grpc.aio echo under the same load in the same run.")
    columns = f"{'CPU/request':>13}{'ratio':>8}{'target':>8}{'':>7}{'requests/s':>12}{'p99':>10}"
    if base:
        print(f"Over base: the CPU time over that of {base} in the same round; median, lowest to highest.")
        columns += "  over base"
    print(f"{'workload':<22}{'subject':<19}{columns}")
    for row in rows:
        met = "" if row.target is None else "met" if row.ratio <= row.target else "MISSED"
        target = "" if row.target is None else f"{row.target:g}"
        quotient = "" if row.over_base is None else "  {:.2f} ({:.2f} to {:.2f})".format(*row.over_base)
        print(f"{row.workload:<22}{row.subject:<19}{row.cpu_us:>10.0f} us{row.ratio:>8.3f}{target:>8}{met:>7}"
              f"{row.requests_per_s:>12.0f}{row.p99_ms:>7.1f} ms{quotient}")  # fmt: skip


def commit(checkout: Path) -> str:
    """The commit that ``checkout`` is at."""
    git = ("git", "-C", str(checkout), "rev-parse", "--short", "HEAD")
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each burst of load (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="bursts of each subject after the first (default 3)")
    parser.add_argument("--only", help="the workloads of these names, with semicolons between")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--base", type=Path, help="a checkout whose picker is measured beside this one's")
    args = parser.parse_args()
    chosen = [w for w in WORKLOADS if not args.only or w.name in args.only.split(";")]
    rows: list[Row] = []
    for workload in chosen:
        rows += uvloop.run(measure(workload, args.seconds, args.rounds, args.base))
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        show(rows, commit(args.base) if args.base else "")


if __name__ == "__main__":
    main()
