"""Does anything grow or get lost while prompts, LoRAs, tenants and endpoints change all the time?

``tierwise standalone`` as a user runs it (its own Envoy, endpoints from a watched file that changes every second) under
paced load that is never the same twice (``benchmarks.picker.churn``). The endpoints answer at once; latency is what the
router adds to that of clients who send to the endpoints directly, in the same slice.

First the bounded tables are filled. The picker keeps series for a limited number of models, tenants and endpoints that
it has ever seen, its metrics page grows with them, and so does the memory that one reading of the page takes: until the
limits are reached, that is growth and no leak. Then each slice is a row: requests, what was refused or lost, latency,
and what the picker's process holds. The verdict is a robust line (``benchmarks.rig.trend``) through the slices after
the first fifth: a column whose line surely rises, and by more than its tolerance (``benchmarks.picker.soak_rows``),
grows.

Run: ``python -m benchmarks.picker.soak [--minutes 5] [--clients 16] [--json]``; filling takes a minute or two more.
Exit status 1 when something was lost, refused or grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import aiohttp
import uvloop

from benchmarks.picker.churn import ChangingEndpoints, Churn, Pacing, fresh_tally
from benchmarks.picker.cpu_per_request import CONFIG, LOOPBACK, child
from benchmarks.picker.soak_rows import Filled, Outcome, Slice, judged
from benchmarks.rig.load import Tally
from epp.metrics.tables import ATTEMPTS
from epp.metrics.telemetry import MAX_FOLDED_ATTEMPT_KEYS
from epp.ports.claim import claim

ENDPOINTS = 30
ENDPOINTS_CHANGE_EVERY_S = 1.0
THINK_S = 0.04
SLICES = 20
FILLING_CHANGES_EVERY_S = 0.15
"""While the tables fill, every new list of endpoints brings names for them, as many as the picker can read."""
FILLED_WITHIN_S = 600.0
MIB = 1 << 20


class Picker:
    """The router's process, observed from outside."""

    def __init__(self, pid: int, metrics_port: int) -> None:
        self.pid = pid
        self._url = f"http://{LOOPBACK}:{metrics_port}/metrics"

    async def page(self) -> str:
        """Return the picker's metrics page."""
        async with aiohttp.ClientSession() as session, session.get(self._url) as response:
            return await response.text()

    async def metric(self, *names: str) -> list[float]:
        """Return the sum of each metric over its labels."""
        page = await self.page()
        return [sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE))) for name in names]

    async def pairs(self) -> int:
        """Return how many pairs of model and endpoint have a counter."""
        return len(re.findall(rf"^{ATTEMPTS.name}(?:_total)?{{", await self.page(), re.MULTILINE))

    def rss_mb(self) -> float:
        """Return the resident memory in MiB."""
        kib = int(Path(f"/proc/{self.pid}/status").read_text().partition("VmRSS:")[2].split()[0])
        return round(kib * 1024 / MIB, 1)

    def cpu_us(self) -> float:
        """Return the CPU time of all threads, including those that have ended."""
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) * 1e6 / os.sysconf("SC_CLK_TCK")

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    async def slice(self, minute: float, tally: Tally, direct: Tally, cpu_us: float) -> Slice:
        """Return what ``tally`` counted through the router and ``direct`` without it, and what the process holds."""
        blocks, in_flight = await self.metric("llm_d_epp_prefix_indexer_size", "llm_d_epp_request_running")
        added = [routed - plain for routed, plain in zip(percentiles(tally), percentiles(direct), strict=True)]
        return Slice(
            minute=round(minute, 2), requests=tally.answered, refused=tally.refused, lost=tally.broken,
            p50_ms=round(added[49], 2), p99_ms=round(added[98], 1),
            cpu_us=round(cpu_us / max(1, tally.answered)), rss_mb=self.rss_mb(),
            fds=self.files(), index_blocks=int(blocks), in_flight=int(in_flight),
            load_average=round(os.getloadavg()[0], 1),
        )  # fmt: skip


def percentiles(tally: Tally) -> list[float]:
    """Return the 1st to the 99th percentile of the latencies, in ms."""
    if len(tally.latencies_s) < 2:
        raise RuntimeError(f"too few answers in a slice: {tally}; take more minutes")
    return [value * 1000 for value in statistics.quantiles(tally.latencies_s, n=100)]


async def soak(minutes: float, clients: int) -> Outcome:
    """Start everything, fill the tables, run the slices and judge them."""
    with tempfile.TemporaryDirectory(prefix="tierwise-soak-") as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            upstream, port, metrics = (claim(LOOPBACK, 0, "port") for _ in range(3))
            (folder / "config.yaml").write_text(CONFIG.replace("41000", "8000"))
            addresses = [f"127.0.0.{i + 1}:{upstream}" for i in range(ENDPOINTS)]
            changing = ChangingEndpoints(folder / "endpoints.json", addresses, seed=1)
            await stack.enter_async_context(
                child("benchmarks.rig.upstream", str(upstream), ready="ready", log=folder / "upstream.log")
            )
            flags = [f"--endpoints-file={folder / 'endpoints.json'}", f"--config-file={folder / 'config.yaml'}"]
            flags += [f"--port={port}", f"--metrics-port={metrics}", "--admin-port=0", f"--host={LOOPBACK}"]
            router = await stack.enter_async_context(
                child("epp.commandline.cli", "standalone", *flags, ready="are welcome", log=folder / "router.log")
            )
            picker = Picker(router.pid, metrics)
            churn = Churn(seed=2)
            filled = await fill(picker, port, changing, churn, clients)
            slices, left, refusal = await run_slices(
                picker, (port, upstream), changing, churn.requests(), minutes, clients
            )
    trends, grows = judged(slices)
    return Outcome(filled, slices, left, changing.changes, refusal, trends, grows)


async def fill(picker: Picker, port: int, changing: ChangingEndpoints, churn: Churn, clients: int) -> Filled:
    """Send requests with ever new names until the picker keeps no further series.

    Raises: RuntimeError when requests are refused, or the tables are not full in time.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    Pacing.think_s = 0.0
    tally = Tally()
    names = churn.names()
    filling = [await connected(names, port) for _ in range(clients)]
    for client in filling:
        client.tally = tally
    pairs = 0
    while pairs < MAX_FOLDED_ATTEMPT_KEYS:
        if tally.refused or loop.time() - began > FILLED_WITHIN_S:
            raise RuntimeError(f"{pairs} pairs of {MAX_FOLDED_ATTEMPT_KEYS} after {tally.answered} responses; "
                               f"{tally.refused} refused. {tally.first_refusal[:200]}")  # fmt: skip
        for _ in range(50):
            changing.step()
            await asyncio.sleep(FILLING_CHANGES_EVERY_S)
        pairs = await picker.pairs()
        print(f"\rfilling: {pairs} series, {picker.rss_mb()} MiB", end="", file=sys.stderr, flush=True)
    await ended(filling)
    return Filled(round(loop.time() - began), tally.answered, pairs, picker.rss_mb())


async def run_slices(
    picker: Picker,
    ports: tuple[int, int],
    changing: ChangingEndpoints,
    requests: Iterator[bytes],
    minutes: float,
    clients: int,
) -> tuple[list[Slice], int, str]:
    """Return the rows, what stayed in flight, and the first refusal. ``ports``: the router's, and the endpoints'."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    deadline = began + minutes * 60
    Pacing.think_s = THINK_S
    routed = [await connected(requests, ports[0]) for _ in range(clients)]
    plain = [await connected(requests, ports[1]) for _ in range(2)]
    slices: list[Slice] = []
    refusal = ""
    while len(slices) < SLICES:
        tally, direct, cpu_us = fresh_tally(routed), fresh_tally(plain), picker.cpu_us()
        until = began + (len(slices) + 1) * (deadline - began) / SLICES
        while loop.time() < until:
            changing.step()
            await asyncio.sleep(min(ENDPOINTS_CHANGE_EVERY_S, max(0.0, until - loop.time())))
        cpu_us = picker.cpu_us() - cpu_us
        for group in (routed, plain):  # later responses count for no slice
            fresh_tally(group)
        row = await picker.slice((loop.time() - began) / 60, tally, direct, cpu_us)
        refusal = refusal or tally.first_refusal
        slices.append(row)
        print(f"\r{row.minute:.1f} min, {row.requests} requests, {row.rss_mb} MiB", end="", file=sys.stderr, flush=True)
    await ended([*routed, *plain])
    left = -1.0
    for _ in range(200):
        (left,) = await picker.metric("llm_d_epp_request_running")
        if not left:
            break
        await asyncio.sleep(0.05)
    return slices, int(left), refusal


async def ended(clients: Sequence[Pacing]) -> None:
    """Let each client get the response that it waits for, and close all connections."""
    for client in clients:
        client.deadline = 0.0
    await asyncio.wait_for(asyncio.gather(*(client.done for client in clients)), 30)


async def connected(requests: Iterator[bytes], port: int) -> Pacing:
    """Return a client that sends until its deadline."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    _, client = await loop.create_connection(lambda: Pacing(requests, float("inf"), Tally(), done), LOOPBACK, port)
    return client


def show(outcome: Outcome, clients: int) -> None:
    """Print the table and the verdict."""
    rows = outcome.slices
    where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    total = sum(row.requests for row in rows)
    print(f"tierwise standalone under load that changes all the time; {where}.")
    print(f"{clients} clients, {ENDPOINTS * 2 // 3} endpoints of {ENDPOINTS}, another list of them every second "
          f"({outcome.endpoint_changes} in all).")  # fmt: skip
    print("p50, p99: added by the router; CPU: of the picker, per request; index: blocks; load: of the machine.")
    filled = outcome.filled
    print(f"Before the first row, {filled.requests} requests with new names in {filled.seconds:.0f} s filled the "
          f"bounded\ntables ({filled.pairs} pairs of model and endpoint): {filled.rss_mb} MiB.\n")  # fmt: skip
    head = ("minute", "requests", "refused", "lost", "p50 ms", "p99 ms", "CPU us", "RSS MiB", "fds", "index")
    head += ("in flight", "load")
    widths = (7, 9, 8, 6, 8, 8, 8, 9, 5, 8, 10, 6)
    print("".join(f"{name:>{width}}" for name, width in zip(head, widths, strict=True)))
    for row in rows:
        print("".join(f"{value:>{width}}" for value, width in zip(asdict(row).values(), widths, strict=True)))
    print(f"\n{total} requests, {sum(r.refused for r in rows)} refused, {sum(r.lost for r in rows)} lost, "
          f"{outcome.left_in_flight} in flight after the last answer. {outcome.first_refusal[:200]}")  # fmt: skip
    for name, line in outcome.trends.items():
        verdict = "GROWS" if name in outcome.grows else "flat"
        interval = f"{line.low * 60:+.2f} to {line.high * 60:+.2f}"
        print(f"{name:<7} {line.slope * 60:+9.2f} per hour (95 %: {interval}): {verdict}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long after the tables are full (default 5)")
    parser.add_argument("--clients", type=int, default=16, help="closed loops, 25 requests/s each at most (default 16)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(arguments)
    outcome = uvloop.run(soak(args.minutes, args.clients))
    print(file=sys.stderr)
    if args.json:
        print(json.dumps(asdict(outcome) | {"failed": outcome.failed}, indent=1))
    else:
        show(outcome, args.clients)
    return int(outcome.failed)


if __name__ == "__main__":
    sys.exit(main())
