"""The process that ``benchmarks.kube.following`` measures: a pool, and what keeps it equal to its source.

It reads one command a line from its standard input, and answers each with one line of JSON:
``loaded`` waits for the first list, ``memory`` collects garbage, ``begin`` starts a stretch, and ``end`` ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from benchmarks.kube.bare import Bare
from benchmarks.kube.objects import CHANGE
from epp.discovery.base import Discovery
from epp.discovery.cluster import PodDiscovery
from epp.discovery.file import FileDiscovery
from epp.discovery.options import PodOptions
from epp.discovery.pool_keeper import PoolKeeper
from epp.kube.access import HOST, PORT, InCluster
from epp.kube.client import Client
from epp.pool.pool import Endpoint, Pool
from epp.runtime.memory import collect_rarely, give_back, keep_freed_memory


class Watched(Pool):
    """A pool that notes when it got each change."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, float] = {}

    def put(self, endpoint: Endpoint) -> None:
        """Note the time, by the clock that all processes share, at which picks begin to obey a change."""
        super().put(endpoint)
        if (change := endpoint.labels.get(CHANGE)) is not None:
            self.seen.setdefault(change, time.clock_gettime(time.CLOCK_MONOTONIC))


def resident_bytes() -> int:
    """Return the memory of this process."""
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS:"))


class Turns:
    """The CPU time of the longest callback of asyncio's own event loop; wall time would contain other processes."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.longest_s = max(self.longest_s, time.thread_time() - began)

        setattr(asyncio.Handle, "_run", timed)  # noqa: B010 - the loop offers no hook


async def work(source: str, folder: Path, port: int, selector: str, turns: Turns | None) -> None:
    """Follow the source, and answer commands until the input ends."""
    loop, pool = asyncio.get_running_loop(), Watched()
    began, cpu = loop.time(), time.process_time()
    discovery: Discovery | Bare
    stack = AsyncExitStack()
    if source == "file":
        discovery = FileDiscovery(pool, folder / "endpoints.json", watch=True)
    elif source == "bare":
        discovery = Bare(InCluster({HOST: "127.0.0.1", PORT: str(port)}, folder), selector)
    else:
        client = await stack.enter_async_context(Client(InCluster({HOST: "127.0.0.1", PORT: str(port)}, folder)))
        selected = PodOptions(selector=selector, ports=(8000,))
        discovery = PodDiscovery(client, PoolKeeper(pool), namespace="default", selected=selected)
    seen = discovery.seen if isinstance(discovery, Bare) else pool.seen
    await discovery.start()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async for line in commands:
        words, answer = line.decode().split(), dict[str, object]()
        if words[0] == "loaded":
            while not (discovery.loaded and len(pool) >= int(words[1])):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            answer = {"wall_s": loop.time() - began, "cpu_s": time.process_time() - cpu}
            answer["longest_turn_s"] = None if turns is None else turns.longest_s
        elif words[0] == "memory":
            gc.collect()
            give_back()  # as the picker does now and then
            answer = {"bytes": resident_bytes(), "endpoints": len(pool)}
        elif words[0] == "begin":
            began, cpu = loop.time(), time.process_time()
            seen.clear()
        elif words[0] == "end":
            answer = {"wall_s": loop.time() - began, "cpu_s": time.process_time() - cpu, "seen": seen}
            answer["trouble"] = discovery.trouble
        print(json.dumps(answer), flush=True)
    await discovery.stop()
    await stack.aclose()


def main() -> None:
    """Run until the standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", choices=("file", "pods", "bare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--selector", default="app=vllm")
    parser.add_argument("--turns", action="store_true", help="measure callbacks, on asyncio's own event loop")
    given = parser.parse_args()
    keep_freed_memory()  # both as the picker does, before it has read anything
    collect_rarely()
    run = asyncio.run if given.turns else uvloop.run
    run(work(given.source, given.folder, given.port, given.selector, Turns() if given.turns else None))


if __name__ == "__main__":
    main()
