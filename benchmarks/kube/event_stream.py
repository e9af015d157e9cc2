"""Does a picker grow while it applies a million events of pods, and what does one event cost?

The events come as fast as they are read, from a process of its own that repeats prepared bytes as the API server
writes them, without TLS: a real API server would need hours. Each changes a label of one pod; every tenth makes the
pod not ready or ready again.

Run: ``python -m benchmarks.kube.event_stream [--events 1000000] [--pods 1000] [--bytes 9000] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection

import uvloop

from benchmarks.kube.follower import resident_bytes
from benchmarks.rig.machine import machine
from benchmarks.rig.trend import trend
from epp.discovery.cluster import PodDiscovery
from epp.discovery.options import PodOptions
from epp.discovery.pool_keeper import PoolKeeper
from epp.kube.client import Client
from epp.pool.pool import Pool
from tests.epp.discovery.pods import written
from tests.epp.kube.access import TokenAccess

SAMPLES = 20
FLAT_MIB_PER_MILLION = 1.0


def lines(pods: int, size: int) -> tuple[bytes, list[bytes]]:
    """Return the body of a list of the pods, and events of which each changes one of them."""
    items, events = list[bytes](), list[bytes]()
    for number in range(pods):
        address = f"10.1.{number >> 8}.{number & 255}"
        for turn in range(2):
            ready = "False" if number % 10 == 0 and turn == 0 else "True"
            pod = written(f"vllm-{number}", ip=address, ready=ready, labels={"app": "vllm", "turn": str(turn)})
            pod["metadata"] |= {"resourceVersion": "2", "annotations": {"padding": ""}}
            pod["metadata"]["annotations"]["padding"] = "x" * max(0, size - len(json.dumps(pod)))
            events.append(json.dumps({"type": "MODIFIED", "object": pod}).encode() + b"\n")
        items.append(json.dumps(pod).encode())
    events.sort(key=lambda line: b'"turn": "1"' in line)  # every pod changes once, then every pod changes back
    return b'{"metadata": {"resourceVersion": "1"}, "items": [' + b",".join(items) + b"]}", events


async def serve(pods: int, size: int, port: Connection) -> None:
    """Answer lists, and watches with events without end."""
    listed, events = lines(pods, size)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"watch=1" not in head:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(listed) + listed)
                    await writer.drain()
                    continue
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:
                    for line in events:
                        writer.write(b"%x\r\n%b\r\n" % (len(line), line))
                        await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def server(pods: int, size: int, port: Connection) -> None:
    """Run ``serve`` until the process is ended."""
    asyncio.run(serve(pods, size, port))


async def measure(port: int, count: int, pods: int) -> dict[str, float]:
    """Follow until ``count`` events were applied. Returns the figures."""
    async with Client(TokenAccess(f"http://127.0.0.1:{port}")) as client:
        pool = Pool()
        selected = PodOptions(selector="app=vllm", ports=(8000,))
        discovery = PodDiscovery(client, PoolKeeper(pool), namespace="default", selected=selected)
        began, cpu = time.perf_counter(), time.process_time()
        await discovery.start()
        done, memory = list[float](), list[float]()
        try:
            for sample in range(1, SAMPLES + 1):
                while (applied := discovery.counts.events) < count * sample // SAMPLES:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                gc.collect()
                done.append(applied)
                memory.append(resident_bytes() / 2**20)
                print(f"{applied:>12,.0f} events {memory[-1]:>8.1f} MiB", file=sys.stderr)
        finally:
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            await discovery.stop()
    if len(pool) < pods * 0.8:
        raise RuntimeError(f"{len(pool)} endpoints of {pods}: the events were not applied")
    half = trend(done[SAMPLES // 4 :], memory[SAMPLES // 4 :])  # what warms up is over by then
    return {
        "events": done[-1],
        "us_per_event": cpu / done[-1] * 1e6,
        "events_per_s": done[-1] / wall,
        "mib_per_million": half.slope * 1e6,
        "grows": float(half.grows(1e6, FLAT_MIB_PER_MILLION)),
    }


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=9000, help="of one pod as JSON")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=server, args=(given.pods, given.bytes, theirs), daemon=True
    )
    process.start()
    try:
        figures = uvloop.run(measure(ours.recv(), given.events, given.pods))
    finally:
        process.terminate()
        process.join()
    if given.json:
        print(json.dumps(figures))
        return
    print(f"{given.pods:,} pods of {given.bytes:,} bytes; {machine()}\n")
    print(f"{figures['events']:,.0f} events, {figures['events_per_s']:,.0f} a second")
    print(f"CPU of one event       {figures['us_per_event']:8.1f} us")
    verdict = "GROWS: MISSED" if figures["grows"] else "flat: met"
    print(f"memory per 10^6 events {figures['mib_per_million']:8.2f} MiB  {verdict}")


if __name__ == "__main__":
    main()
