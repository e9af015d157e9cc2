"""A simulated engine publishes what it holds: the picker's index of its events agrees with it at every moment."""

from __future__ import annotations

import asyncio
from array import array
from contextlib import closing
from dataclasses import replace
from random import Random

import pytest

from epp.kvevents.follower.decoding import decode
from epp.lab.engine.events import EngineEvents
from epp.lab.engine.job import Job
from epp.lab.engine.live import LiveEngine
from epp.lab.engine.preset import DEMO
from epp.lab.engine.publisher import EventPublisher
from epp.lab.engine.tokens import block_keys
from tests.epp.kvevents.fleet import Fleet

SMALL = replace(DEMO, gpu_blocks=40, cpu_blocks=45, max_model_len=640, max_num_seqs=8)


class KeepingPublisher(EventPublisher):
    """A publisher that keeps its batches instead of sending them."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0)
        self.batches: list[bytes] = []

    def send(self, payload: bytes, *, lost: bool = False) -> None:
        self.batches.append(payload)


@pytest.mark.parametrize("seed", range(3))
def test_its_events_say_what_it_holds(seed: int) -> None:
    async def body() -> None:
        with closing(KeepingPublisher()) as publisher:
            await follow(publisher, Random(seed))

    asyncio.run(body())


async def follow(publisher: KeepingPublisher, random: Random) -> None:
    fleet, events = Fleet(), EngineEvents(SMALL, publisher)
    engine = events.engine
    prompts = [[random.randrange(9) for _ in range(16 * random.randrange(1, 20) + 5)] for _ in range(6)]
    prompts += [prompts[0][: 16 * 2] + each for each in prompts[1:3]]
    now, running = 0.0, []
    for number in range(120):
        data = array("I", random.choice(prompts)).tobytes()
        keys = block_keys(b"", data, 16)
        events.learn(keys, data, "")
        running.append(keys)
        engine.submit(Job(str(number), keys, len(data) // 4, 3), now)
        now += random.choice((0.01, 1.0, 9.0))
        engine.advance(now)
        if number % 40 == 39:
            engine.reset_prefix_cache()
        if random.random() < 0.5:
            events.forget(running.pop(0))
        await asyncio.sleep(0)
        for payload in publisher.batches:
            fleet.say(0, *decode(payload).events)
        publisher.batches.clear()
        for prompt in prompts:
            names = block_keys(b"", array("I", prompt).tobytes(), 16)
            held = [tier.get(0, 0) for tier in fleet.held(prompt)]
            assert held == [16 * engine.gpu.matched(names), 16 * engine.cpu.matched(names), 0]
    assert engine.gpu.evicted > 20 < engine.cpu.evicted


def test_a_live_engine_publishes_while_it_serves() -> None:
    async def body() -> None:
        with closing(KeepingPublisher()) as publisher:
            await live_engine(publisher)

    asyncio.run(body())


async def live_engine(publisher: KeepingPublisher) -> None:
    events = EngineEvents(SMALL, publisher)
    live = LiveEngine(events.engine, speed=1000.0)
    data = array("I", range(64)).tobytes()
    keys = block_keys(b"", data, 16)
    events.learn(keys, data, "pepper", "sql")
    with live.serving([Job("a", keys, 64, 1)], streaming=False) as answer:
        while not answer.finished:
            await answer.changed()
    await asyncio.sleep(0)
    live.stop()
    (stored, *_) = decode(publisher.batches[0]).events
    assert (stored.block_size, len(stored.block_hashes), stored.extra_keys) == (16, 4, [["sql", "pepper"]])  # type: ignore[union-attr]
    assert stored.lora_name == "sql"  # type: ignore[union-attr]
