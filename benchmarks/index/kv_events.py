"""How fast are KV events followed, what do they cost the picks beside them, and how much memory does a block take?

The events are as vLLM publishes them in a steady state: a prompt of 4,096 tokens (256 blocks of 16, half of them shared
with others) is stored by one event, and as many blocks go, each by an event of its own, the last of a prompt first.
A *block event* is one block stored or removed.

*decode*: bytes to events. *resolve*: engine hashes to runs, and orders for the picker (the follower's work with
*decode*). *apply*: orders to the index (the picker's). All on one thread, and together. Then the real thing:
publishers at a fixed rate, the follower in its process, the picker's event loop; picks are due at a fixed rate, seconds
with and without events in turn. *due*: from when a pick was due, so with all that the loop did first; *decision*:
its CPU time alone, which says what the events do to caches and indices whatever else the machine does.

Run: ``python -m benchmarks.index.kv_events [--seconds 30] [--rate 100000] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.decision import Cause, Outcome, RequestHead
from epp.kvevents.applying import perform
from epp.kvevents.feed import Feed
from epp.kvevents.follower.decoding import decode
from epp.kvevents.follower.residents import Residents
from epp.kvevents.follower.runs import Runs
from epp.kvevents.follower.tally import Tally
from epp.kvevents.orders import LENGTH_BYTES, FollowerMessage, framed
from epp.pool.pool import Endpoint
from epp.server.core import Core
from epp.server.settings import Settings
from scorers.precise.index import PreciseIndex

BLOCK, PROMPT_BLOCKS, SHARED_BLOCKS, GROUPS = 16, 256, 128, 64
HELD_PROMPTS = 40
"""Of one endpoint, before the first go: 10,240 blocks."""
ENDPOINTS = 16
PICKS_PER_S = 400
TURN_S = 1.0
SECRET = bytes(32)
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: queue-scorer}
  - {type: kv-cache-utilization-scorer}
  - type: precise-prefix-cache-producer
    parameters: {kvEventsConfig: {podDiscoveryConfig: {socketPortLabel: events, replaySocketPortLabel: replay}}}
  - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
"""


class Engine:
    """The events of one simulated endpoint."""

    def __init__(self, number: int) -> None:
        self._random = Random(number)
        self._shared = [[Random(g).randrange(150_000) for _ in range(SHARED_BLOCKS * BLOCK)] for g in range(GROUPS)]
        self._held: deque[tuple[int, list[int]]] = deque()
        self._users: dict[int, int] = {}
        self._next = number << 40

    def prompt(self) -> tuple[int, list[int]]:
        """A group, and tokens."""
        group = self._random.randrange(GROUPS)
        own = [self._random.randrange(150_000) for _ in range((PROMPT_BLOCKS - SHARED_BLOCKS) * BLOCK)]
        return group, self._shared[group] + own

    def batch(self) -> tuple[bytes, int]:
        """The next batch, and its block events."""
        group, tokens = self.prompt()
        first = group << 20 | 1
        shared = [first + n for n in range(SHARED_BLOCKS)]
        own = [self._next + n for n in range(PROMPT_BLOCKS - SHARED_BLOCKS)]
        self._next += len(own)
        cached = self._users.get(group, 0) > 0
        events: list[dict[str, Any]] = [
            {
                "type": "BlockStored",
                "block_hashes": own if cached else shared + own,
                "parent_block_hash": shared[-1] if cached else None,
                "token_ids": tokens[SHARED_BLOCKS * BLOCK :] if cached else tokens,
                "block_size": BLOCK, "lora_id": None, "medium": "GPU", "lora_name": None, "group_idx": 0,
            }
        ]  # fmt: skip
        count = len(events[0]["block_hashes"])
        self._held.append((group, own))
        self._users[group] = self._users.get(group, 0) + 1
        if len(self._held) > HELD_PROMPTS:
            gone, names = self._held.popleft()
            self._users[gone] -= 1
            if not self._users[gone]:
                names = [(gone << 20 | 1) + n for n in range(SHARED_BLOCKS)] + names
            events += [
                {"type": "BlockRemoved", "block_hashes": [name], "medium": "GPU", "group_idx": 0}
                for name in reversed(names)
            ]
            count += len(names)
        return msgspec.msgpack.encode([time.time(), events, 0]), count


def ignore(kind: str, value: str) -> None:
    """Discard what the reader reports."""


def batches(seconds: float = 2.0) -> tuple[list[tuple[int, bytes]], int, int]:
    """Batches of all endpoints in turn; how many of them fill the endpoints, and the block events of the others."""
    engines = [Engine(n) for n in range(ENDPOINTS)]
    made: list[tuple[int, bytes]] = []
    events = 0
    fill = ENDPOINTS * (HELD_PROMPTS + 1)
    for n in range(fill + round(seconds * 200)):
        payload, count = engines[n % ENDPOINTS].batch()
        made.append((n % ENDPOINTS, payload))
        events += count if n >= fill else 0
    return made, fill, events


def rates() -> dict[str, float]:
    """Block events per second of one core, by part."""
    made, fill, events = batches()
    gc.disable()
    steady = made[fill:]
    began = time.perf_counter()
    for _, payload in steady:
        decode(payload)
    took = {"decode": time.perf_counter() - began}

    runs, index = Runs(SECRET), PreciseIndex(SECRET)
    sources = [Residents(runs, n, Tally(), ignore) for n in range(ENDPOINTS)]
    for source, payload in made[:fill]:
        sources[source].apply(decode(payload).events)
    for order in runs.take():
        perform(order, index)
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(list[FollowerMessage])
    sums = dict.fromkeys(("decode and resolve", "apply"), 0.0)
    orders = 0
    for source, payload in steady:
        began = time.perf_counter()
        sources[source].apply(decode(payload).events)
        said = encoder.encode(runs.take())
        between = time.perf_counter()
        for order in decoder.decode(said):
            perform(order, index)
            orders += 1
        sums["apply"] += time.perf_counter() - between
        sums["decode and resolve"] += between - began
    gc.enable()
    took |= sums
    took["all, one after the other"] = took["decode and resolve"] + took["apply"]
    return {name: events / seconds for name, seconds in took.items()} | {"block events per order": events / orders}


# Memory


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def followed(prompt_blocks: int, endpoints: int, orders: Path | None, blocks: int = 1_000_000) -> float:
    """Bytes per (block, endpoint) that the follower grows by: ``blocks`` of them, in prompts that every endpoint has.

    Writes its ``orders`` to a file, if there is one.
    """
    random = Random(1)
    runs = Runs(SECRET)
    sources = [Residents(runs, n, Tally(), ignore) for n in range(endpoints)]
    file = orders.open("wb") if orders is not None else None
    before, name = resident_bytes(), 1
    for _ in range(blocks // prompt_blocks // endpoints):
        tokens = list(array("I", random.randbytes(4 * BLOCK * prompt_blocks)))
        names = list(range(name, name + prompt_blocks))
        name += prompt_blocks
        event = {"type": "BlockStored", "block_hashes": names, "token_ids": tokens, "block_size": BLOCK}
        payload = msgspec.msgpack.encode([0.0, [event]])
        for source in sources:
            source.apply(decode(payload).events)
        said = framed(runs.take())
        if file is not None:
            file.write(said)
    if file is not None:
        file.close()
    return (resident_bytes() - before) / blocks


def picked(orders: Path, blocks: int = 1_000_000) -> float:
    """The same of the picker's index, by the follower's orders."""
    index, decoder = PreciseIndex(SECRET), msgspec.msgpack.Decoder(list[FollowerMessage])
    before = resident_bytes()
    with orders.open("rb") as file:
        while length := int.from_bytes(file.read(LENGTH_BYTES), "big"):
            for order in decoder.decode(file.read(length)):
                perform(order, index)
    return (resident_bytes() - before) / blocks


def memories() -> dict[str, float]:
    """Each in a process of its own."""
    found = {}
    for title, prompt_blocks, endpoints in (
        ("prompts of 256 blocks, nothing shared", 256, 1),
        ("prompts of 4 blocks, nothing shared", 4, 1),
        ("prompts of 256 blocks that 8 endpoints share", 256, 8),
    ):
        with tempfile.TemporaryDirectory() as folder:
            orders = Path(folder) / "orders"
            found[f"follower: {title}"] = alone(followed, prompt_blocks, endpoints, None)
            alone(followed, prompt_blocks, endpoints, orders)
            found[f"picker: {title}"] = alone(picked, orders)
    return found


def alone(work: Callable[..., float], *arguments: Any) -> float:
    """What ``work`` returns in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


# Beside picks


def publish(ports: Any, rate: int, speaking: Any, ended: Any, spoken: Any) -> None:
    """A process: all publishers, at ``rate`` block events per second in all while ``speaking``."""
    from epp.lab.engine.publisher import EventPublisher

    async def body() -> None:
        publishers = [EventPublisher("127.0.0.1", 0, 0) for _ in range(ENDPOINTS)]
        for n, publisher in enumerate(publishers):
            ports[2 * n], ports[2 * n + 1] = publisher.port, publisher.replay_port
        made, fill, events = batches(4.0)
        for n, payload in made[:fill]:
            publishers[n].send(payload)
        steady = made[fill:]
        per_batch = events / len(steady)
        engines = [Engine(n) for n in range(ENDPOINTS)]
        for each in engines:  # go on where the batches above end
            each._next += 1 << 36
        spoken.value = 1
        due, n = time.monotonic(), 0
        while not ended.is_set():
            if not speaking.is_set():
                await asyncio.sleep(0.005)
                due = time.monotonic()
                continue
            source, payload = steady[n % len(steady)]
            publishers[source].send(payload)
            n += 1
            due += per_batch / rate
            spoken.value += round(per_batch)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        for publisher in publishers:
            publisher.close()

    asyncio.run(body())


async def beside(seconds: float, rate: int) -> dict[str, Any]:
    """p50 and p99 of picks in ms, with and without events, second by second in turn."""
    context = multiprocessing.get_context("spawn")
    ports = context.Array("i", 2 * ENDPOINTS)
    speaking, ended, spoken = context.Event(), context.Event(), context.Value("q", 0)
    publisher = context.Process(target=publish, args=(ports, rate, speaking, ended, spoken))
    publisher.start()
    core = Core(build(load_text(CONFIG)), Settings())
    while spoken.value == 0:  # noqa: ASYNC110 - it is another process's
        await asyncio.sleep(0.05)
    endpoints = [
        Endpoint(f"127.0.0.1:{9000 + n}", labels={"events": str(ports[2 * n]), "replay": str(ports[2 * n + 1])})
        for n in range(ENDPOINTS)
    ]
    core.pool.replace(endpoints)
    cache, precise = core.precise, core.plan.precise
    assert cache is not None
    assert precise is not None
    feed = Feed(cache, precise.parameters.kv_events_config, core.pool)
    feed.start()
    while any(status.why for status in cache.statuses()) or len(cache.statuses()) < ENDPOINTS:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    engine = Engine(99)
    bodies = [msgspec.json.encode({"model": "m", "prompt": engine.prompt()[1], "max_tokens": 1}) for _ in range(64)]
    head = RequestHead({":path": "/v1/completions", "x-request-id": "1"})
    took: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    loop = asyncio.get_running_loop()
    gc.freeze()
    began = spoken.value
    own = time.process_time()
    try:
        for turn in range(round(seconds / TURN_S)):
            on = bool(turn % 2)
            (speaking.set if on else speaking.clear)()
            due = loop.time() + 0.1
            for n in range(round(TURN_S * PICKS_PER_S)):
                await asyncio.sleep(max(0.0, due - loop.time()))
                begun = time.thread_time()
                decision = core.director.decide(head, bodies[n % len(bodies)])
                took[on].append((loop.time() - due, time.thread_time() - begun))
                core.director.picks.ended(decision.pick_id, Outcome(Cause.COMPLETED))
                due += 1 / PICKS_PER_S
        statuses = cache.statuses()
        published = spoken.value - began
        batches_heard = feed.counts.counts
    finally:
        ended.set()
        await feed.stop()
        publisher.join()
    return {
        "picks": {("with" if on else "without"): percentiles(times) for on, times in took.items()},
        "published_per_s": published / (seconds / 2),
        "blocks_followed": batches_heard.get("stored", 0) + batches_heard.get("removed", 0),
        "endpoints_known": sum([not each.why for each in statuses]),
        "gaps": sum([each.gaps for each in statuses]),
        "process_cpu": (time.process_time() - own) / seconds,
    }


def percentiles(times: list[tuple[float, float]]) -> dict[str, float]:
    """Return the medians and 99th percentiles in milliseconds."""
    found = {}
    for name, column in zip(("due", "decision"), zip(*times, strict=True), strict=True):
        found[f"{name}_p50"] = 1000 * statistics.median(column)
        found[f"{name}_p99"] = 1000 * sorted(column)[round(len(column) * 0.99)]
    return found


def report(found: dict[str, Any], rate: int) -> Iterator[str]:
    """Yield the lines of the tables."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    yield f"{machine}; load {os.getloadavg()[0]:.1f}"
    yield ""
    yield "block events per second of one core (target 100,000)"
    for name, value in found["rates"].items():
        yield f"  {name:42} {value:12,.0f}"
    yield ""
    yield "bytes per (block, endpoint), 1,000,000 of them"
    for name, value in found["memory"].items():
        yield f"  {name:64} {value:7.1f}"
    yield ""
    beside = found["beside"]
    yield f"picks of 4,096 tokens among {ENDPOINTS} endpoints, {PICKS_PER_S} per second"
    columns = ("due_p50", "due_p99", "decision_p50", "decision_p99")
    yield f"  {'ms':28} " + " ".join([f"{name.replace('_', ' '):>13}" for name in columns])
    rows = beside["picks"]
    for name in ("without", "with"):
        yield f"  {name + f' {rate:,} block events/s':28} " + " ".join([f"{rows[name][c]:13.2f}" for c in columns])
    ratios = [rows["with"][c] / rows["without"][c] for c in columns]
    yield f"  {'ratio':28} " + " ".join([f"{ratio:13.2f}" for ratio in ratios])
    yield (
        f"  published {beside['published_per_s']:,.0f}/s; {beside['endpoints_known']} of {ENDPOINTS} endpoints known "
        f"at the end, {beside['gaps']} gaps; the picker's process used {beside['process_cpu']:.2f} core"
    )


def main() -> int:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    parts: dict[str, Callable[[], Any]] = {
        "rates": rates,
        "memory": memories,
        "beside": lambda: asyncio.run(beside(chosen.seconds, chosen.rate)),
    }
    found = {name: part() for name, part in parts.items()}
    print(json.dumps(found, indent=2) if chosen.json else "\n".join(report(found, chosen.rate)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
