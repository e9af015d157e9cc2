"""Fifty publishers with every fault at once, and two without: real sockets, the real follower."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import zmq

from epp.pool.pool import Endpoint
from scorers.base import Tier
from tests.e2e.site.background import until
from tests.epp.kvevents.test_feed import (
    LOOPBACK,
    OPENED,
    PORT,
    REPLAY,
    Followed,
    endpoint,
    followed,
    publishing,
    removed,
    stored,
)

HOSTILE, ROUNDS = 50, 150
MOST_MEMORY_BYTES = 600 << 20
HUGE = b"\xdd\xff\xff\xff\xff"
"""The first bytes of a list of four billion entries."""


class Hostile:
    """One publisher, and the faults that it may have."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], seed: int) -> None:
        self.random = random.Random(seed)
        self._context = context
        self.pub = context.socket(zmq.PUB)
        self.pub.linger = 0
        self.port = self.pub.bind_to_random_port(f"tcp://{LOOPBACK}")
        self.router = context.socket(zmq.ROUTER)
        self.router.linger = 0
        self.replay_port = self.router.bind_to_random_port(f"tcp://{LOOPBACK}")
        self.number = 0

    def act(self) -> None:
        """Publish random messages, and respond to replay requests with invalid ones."""
        self.random.choice(self.acts)()
        while self.router.poll(0):
            who = self.router.recv_multipart()[0]
            self.router.send_multipart([who, *self.random.choice(ANSWERS)])

    @property
    def acts(self) -> list[Callable[[], None]]:
        return [
            self.garbage, self.half_a_message, self.too_many_frames, self.nonsense, self.anything, self.back,
            self.ahead, self.restart, self.flap, self.silent,
        ]  # fmt: skip

    def send(self, payload: bytes, number: int | None = None) -> None:
        self.number = self.number + 1 if number is None else number
        self.pub.send_multipart([b"", (self.number % (1 << 64)).to_bytes(8, "big"), payload])

    def garbage(self) -> None:
        self.send(self.random.randbytes(self.random.randint(0, 2000)))

    def half_a_message(self) -> None:
        self.pub.send_multipart([b"", (1).to_bytes(3, "big")])

    def too_many_frames(self) -> None:
        self.pub.send_multipart([b""] * 7)

    def nonsense(self) -> None:
        self.send(self.random.choice(NONSENSE))

    def anything(self) -> None:
        draw = self.random
        names = [draw.randint(0, 50) for _ in range(draw.randint(0, 5))]
        size = draw.choice([-1, 0, 1, 2, 16, 1 << 16, 1 << 40])
        block = {
            "type": "BlockStored", "block_hashes": names, "parent_block_hash": draw.choice([None, *range(50)]),
            "token_ids": [draw.randint(0, 9)] * min(200_000, max(0, size) * draw.randint(0, 5)), "block_size": size,
            "lora_id": None, "medium": draw.choice(["GPU", "CPU", "STORAGE", "TAPE", None, "x" * 9999]),
            "lora_name": draw.choice([None, "l" * 9999, "a"]),
            "extra_keys": draw.choice([None, [["s"]], [["s" * 9999]]]),
            "group_idx": draw.choice([None, 0, draw.randint(0, 1 << 60)]),
            "kv_cache_spec_kind": draw.choice([None, "sliding_window"]),
        }  # fmt: skip
        gone = {"type": "BlockRemoved", "block_hashes": names, "medium": "CPU"}
        events = [block, gone, {"type": "AllBlocksCleared"}, {"type": "New"}]
        self.send(msgspec.msgpack.encode([0.0, draw.sample(events, 2), draw.choice([None, draw.randint(0, 1 << 40)])]))

    def back(self) -> None:
        self.send(EMPTY, max(0, self.number - 3))

    def ahead(self) -> None:
        self.send(EMPTY, self.random.choice([self.number + 5, (1 << 64) - 2]))

    def restart(self) -> None:
        self.send(EMPTY, 0)

    def flap(self) -> None:
        self.pub.close(0)
        self.pub = self._context.socket(zmq.PUB)
        self.pub.linger = 0
        try:
            self.pub.bind(f"tcp://{LOOPBACK}:{self.port}")
        except zmq.ZMQError:  # not quite closed yet: another time
            return
        self.number = 0

    def silent(self) -> None:
        """Publish nothing in this turn."""


EMPTY = msgspec.msgpack.encode([0.0, []])
NONSENSE = [
    HUGE,
    b"\x93\xcb" + bytes(8) + HUGE,
    b"\x91" * 5000,
    b"\xc1",
    msgspec.msgpack.encode({"events": []}),
    msgspec.msgpack.encode([0.0, [{"type": "BlockStored", "block_hashes": "many"}]]),
    msgspec.msgpack.encode([0.0, [["BlockStored", [1], None, [1.5], 1]]]),
    msgspec.msgpack.encode(
        [0.0, [{"type": "BlockStored", "block_hashes": [1, 2, 3], "token_ids": [1], "block_size": 9}]]
    ),
]
ANSWERS = [
    [b""],
    [b"", b"", b"short", b"x"],
    [b"", b"", bytes(8), HUGE],
    [b"", b"", bytes(8), EMPTY],
    [b"", b"", (-1).to_bytes(8, "big", signed=True), b""],
]


def memory_bytes(pid: int) -> int:
    """Return the resident memory of the follower."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_whatever_fifty_publishers_do_at_once_nothing_dies_and_the_others_stay_precise() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    hostile = [Hostile(context, seed) for seed in range(HOSTILE)]
    try:
        asyncio.run(body(hostile))
    finally:
        context.destroy(0)
        OPENED.clear()


async def body(hostile: list[Hostile]) -> None:
    honest = [publishing(), publishing()]
    endpoints = [endpoint(each, number=9000 + n) for n, each in enumerate(honest)]
    for number, each in enumerate(hostile):
        labels = {PORT: str(each.port)} | ({REPLAY: str(each.replay_port)} if number % 2 else {})
        endpoints.append(Endpoint(f"{LOOPBACK}:{8000 + number}", labels=labels))
    async with followed(*endpoints) as fleet:
        await fleet.known(0)
        await fleet.known(1)
        pid = fleet.feed.pid
        for count in range(1, ROUNDS + 1):
            for each in hostile:
                each.act()
            for publisher in honest:
                tokens = [count, count]
                publisher.publish([stored(count, tokens), stored(count, tokens, medium="CPU"), removed(count - 1)])
            await until(partial(is_held, fleet, count), f"{count} is held")
            assert not fleet.held([count - 1] * 2).keys() & {0, 1}
            assert (fleet.why(0), fleet.why(1)) == ("", "")
            fleet.cache.index.check_integrity()
        assert (fleet.feed.pid, fleet.feed.restarts) == (pid, 0)
        left_out = {"unreadable", "malformed", "skipped", "unknown_events", "unknown_removals", "failed_replays"}
        await until(lambda: left_out <= {name for name, count in fleet.feed.counts.counts.items() if count})
        assert pid is not None
        assert memory_bytes(pid) < MOST_MEMORY_BYTES
    for publisher in honest:
        publisher.close()


def is_held(fleet: Followed, count: int) -> bool:
    """Return whether the blocks of both faultless publishers are held in both tiers."""
    return all({0: 2, 1: 2}.items() <= fleet.held([count] * 2, tier).items() for tier in (Tier.GPU, Tier.CPU))
