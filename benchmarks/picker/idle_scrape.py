"""What does it cost to keep the numbers of 100 endpoints fresh, with 100 KB of metrics each?

CPU time of this process, which does nothing but scrape, as a share of one core: with nothing in flight, and with a
request in flight at every endpoint. The baseline is parsing the whole page with prometheus-client. Then the CPU time
that one scrape of a small page adds to a process that has other work, at 4 busy endpoints: fetched by aiohttp, and as
the picker fetches it.

Run: ``python -m benchmarks.picker.idle_scrape [--endpoints 100] [--bytes 100000] [--seconds 10] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.rig.upstream import metrics_text
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, Pool
from epp.scrape.pace import Pace
from epp.scrape.parameters import ScrapeParameters
from epp.scrape.reading.reader import EngineReader
from epp.scrape.reading.specs import VLLM
from epp.scrape.scraper import Scraper

SETTLE_S = 2.0


@dataclass(frozen=True)
class Row:
    """The figures of one state. Units: scrapes per second, cores, µs of CPU."""

    state: str
    scrapes_per_s: float
    cores: float
    us_per_scrape: float
    us_reading: float
    us_parsing_whole: float


async def cost(scraper: Scraper, seconds: float) -> tuple[float, float]:
    """Return the scrapes and the CPU seconds per second."""

    def scrapes() -> float:
        return next(value for r in scraper.readings() if r.name == "tierwise_scrapes" for _, value in r.samples)

    await asyncio.sleep(SETTLE_S)
    wall, cpu, before = time.perf_counter(), time.process_time(), scrapes()
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - wall
    return (scrapes() - before) / elapsed, (time.process_time() - cpu) / elapsed


def cpu_us(work: object, times: int) -> float:
    """Return the CPU time of one call of ``work`` in µs."""
    began = time.process_time()
    for _ in range(times):
        work()  # type: ignore[operator]
    return (time.process_time() - began) / times * 1e6


async def measure(addresses: list[str], size: int, seconds: float) -> list[Row]:
    page = metrics_text(size)
    text = page.decode()
    reader = EngineReader(VLLM)
    reading = cpu_us(lambda: reader.read(page), 200)
    parsing = cpu_us(lambda: list(text_string_to_metric_families(text)), 3)
    pool = Pool()
    ledger = Ledger(pool)
    pool.replace([Endpoint(address) for address in addresses])
    scraper = Scraper(pool, ledger, ScrapeParameters(), Pace(), ended=lambda *_: None)
    await scraper.start()
    rows = []
    try:
        for state in ("idle", "busy"):
            if state == "busy":
                for candidate in pool.candidates():
                    ledger.open(candidate, 100, time.monotonic())
            rate, cores = await cost(scraper, seconds)
            rows.append(Row(state, rate, cores, cores / rate * 1e6, reading, parsing))
        assert all(candidate.fresh for candidate in pool.candidates()), "an endpoint was not read in time"
    finally:
        await scraper.stop()
    return rows


@dataclass(frozen=True)
class Added:
    """The CPU time that scraping adds. Units: scrapes per second, µs of CPU."""

    fetched_by: str
    scrapes_per_s: float
    us_per_scrape: float


SMALL_BYTES, BUSY_ENDPOINTS, ROUNDS = 1500, 4, 4
USERS = {"aiohttp": "user:word@", "the picker": ""}
"""What precedes the host in the URL; the picker fetches URLs with a password by aiohttp."""


async def other_work() -> None:
    """Keep the event loop running and its caches in use 250 times a second, as requests do."""
    text = json.dumps({str(number): [number] * 5 for number in range(60)})
    while True:
        for _ in range(6):
            json.loads(text)
        await asyncio.sleep(0.004)


async def added(port: int, seconds: float) -> list[Added]:
    """Return medians over alternating rounds; each is compared with the same work alone just before."""
    working = asyncio.create_task(other_work())
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in USERS}
    for _ in range(ROUNDS):
        for name, user in USERS.items():
            began = time.process_time()
            await asyncio.sleep(seconds)
            alone = (time.process_time() - began) / seconds
            pool = Pool()
            ledger = Ledger(pool)
            addresses = [f"127.0.0.{1 + number}:{port}" for number in range(BUSY_ENDPOINTS)]
            pool.replace([Endpoint(at, metrics_url=f"http://{user}{at}/metrics") for at in addresses])
            scraper = Scraper(pool, ledger, ScrapeParameters(), Pace(), ended=lambda *_: None)
            for candidate in pool.candidates():
                ledger.open(candidate, 100, time.monotonic())
            await scraper.start()
            rate, cores = await cost(scraper, seconds)
            await scraper.stop()
            found[name].append((rate, (cores - alone) / rate * 1e6))
    working.cancel()
    return [Added(name, *(median(column) for column in zip(*rows, strict=True))) for name, rows in found.items()]


@contextmanager
def upstream(size: int) -> Iterator[int]:
    """Yield the port of engines with ``size`` bytes of metrics, at every loopback address."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.rig.upstream", str(port), "--metrics-bytes", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield port
        finally:
            process.terminate()


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("0.0.0.0", 0))
        return int(unused.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with upstream(args.bytes) as port:
        addresses = [f"127.0.0.{1 + number}:{port}" for number in range(args.endpoints)]
        rows = uvloop.run(measure(addresses, args.bytes, args.seconds))
    with upstream(SMALL_BYTES) as port:
        small = uvloop.run(added(port, args.seconds / ROUNDS))
    if args.json:
        print(
            json.dumps(
                {
                    "hardware": platform.processor(),
                    "rows": [asdict(row) for row in rows],
                    "added": [asdict(row) for row in small],
                }
            )
        )
        return
    print(f"{args.endpoints} endpoints, {args.bytes:,} bytes of metrics each; {platform.machine()}\n")
    print("| state | scrapes/s | cores | µs per scrape | of that reading | parsing the page whole |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.state} | {row.scrapes_per_s:.0f} | {row.cores:.3f} | {row.us_per_scrape:.0f} "
            f"| {row.us_reading:.0f} | {row.us_parsing_whole:.0f} |"
        )
    print(f"\n{BUSY_ENDPOINTS} busy endpoints, {SMALL_BYTES:,} bytes of metrics each, beside other work\n")
    print("| fetched by | scrapes/s | µs added per scrape | of aiohttp's |")
    print("|---|---|---|---|")
    for row_added in small:
        share = row_added.us_per_scrape / small[0].us_per_scrape
        print(
            f"| {row_added.fetched_by} | {row_added.scrapes_per_s:.0f} | {row_added.us_per_scrape:.0f} | {share:.2f} |"
        )


if __name__ == "__main__":
    main()
