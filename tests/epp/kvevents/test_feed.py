"""Publishers, the process that follows them, and the picker's index: all real, on loopback."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from epp.kvevents.feed import SILENT_S, Feed
from epp.kvevents.follower.subscriber import Subscriber
from epp.kvevents.orders import Follow, Incomplete, Start, Wire
from epp.lab.engine.publisher import EventPublisher
from epp.pool.pool import Endpoint, Pool
from scorers.base import Prompt, Slot, Tier
from scorers.precise.parameters import KvEventsConfig, PreciseParameters
from scorers.precise.producer import PrecisePrefixProducer
from tests.e2e.site.background import until
from tests.epp.kvevents.fleet import BASE, data

LOOPBACK = "127.0.0.1"
ROOT = Path(__file__).parents[3]
PORT, REPLAY = "tierwise/kv-events-port", "tierwise/kv-replay-port"


class Followed:
    """A running feed and its index."""

    def __init__(self, feed: Feed, pool: Pool, producer: PrecisePrefixProducer) -> None:
        assert producer.source is not None
        self.feed, self.pool, self.cache = feed, pool, producer.source

    def held(self, tokens: list[int], tier: Tier = Tier.GPU) -> dict[Slot, int]:
        """Return the hit tokens of ``tokens`` with one more: the last token of a prompt is never a hit."""
        return dict(self.cache.find([Prompt(BASE, data([*tokens, 0]))]).held[tier])

    def why(self, slot: int = 0) -> str:
        told = self.cache.status(Slot(slot))
        return "no endpoint" if told is None else told.why

    async def known(self, slot: int = 0) -> None:
        await until(lambda: self.why(slot) == "", "the endpoint is known")

    async def holds(self, tokens: list[int], expected: dict[int, int], tier: Tier = Tier.GPU) -> None:
        await until(lambda: self.held(tokens, tier) == expected, f"{expected} is held")


@asynccontextmanager
async def followed(
    *endpoints: Endpoint, settings: KvEventsConfig | None = None, silent_s: float = SILENT_S
) -> AsyncIterator[Followed]:
    settings = settings or KvEventsConfig()
    producer = PrecisePrefixProducer(PreciseParameters(kv_events_config=settings))
    cache, pool = producer.new_cache(), Pool()
    pool.listeners.append(cache)
    pool.replace(endpoints)
    feed = Feed(cache, settings, pool, silent_s=silent_s)
    feed.start()
    try:
        yield Followed(feed, pool, producer)
    finally:
        await feed.stop()


def endpoint(publisher: EventPublisher, *, replay: bool = True, number: int = 8000) -> Endpoint:
    labels = {PORT: str(publisher.port)} | ({REPLAY: str(publisher.replay_port)} if replay else {})
    return Endpoint(f"{LOOPBACK}:{number}", labels=labels)


def stored(name: int, tokens: list[int], parent: int | None = None, medium: str = "GPU") -> dict[str, Any]:
    return {
        "type": "BlockStored", "block_hashes": [name], "parent_block_hash": parent, "token_ids": tokens,
        "block_size": len(tokens), "lora_id": None, "medium": medium, "lora_name": None,
    }  # fmt: skip


def removed(name: int, medium: str = "GPU") -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": [name], "medium": medium}


OPENED: list[EventPublisher] = []


def publishing(port: int = 0, replay_port: int | None = 0) -> EventPublisher:
    """Start a publisher that runs until the end of the test."""
    OPENED.append(EventPublisher(LOOPBACK, port, replay_port))
    return OPENED[-1]


CLEARED = {"type": "AllBlocksCleared"}


async def heard(fleet: Followed, publisher: EventPublisher) -> None:
    """Publish until it arrives, since batches before the connection are lost."""

    def said() -> bool:
        publisher.publish([])
        return fleet.why() in ("", "joined late")

    await until(said)


def run(test: Callable[[], Any]) -> None:
    async def body() -> None:
        try:
            await test()
        finally:
            while OPENED:
                OPENED.pop().close()

    asyncio.run(body())


def test_what_was_published_before_and_what_is_published_now_is_known() -> None:
    async def body() -> None:
        publisher = publishing()
        publisher.publish([stored(1, [1, 2]), stored(1, [1, 2], medium="CPU")])
        async with followed(endpoint(publisher)) as fleet:
            await fleet.known()
            assert fleet.held([1, 2, 3, 4]) == {0: 2}
            publisher.publish([stored(2, [3, 4], parent=1)])
            await fleet.holds([1, 2, 3, 4], {0: 4})
            publisher.publish([removed(1)])
            await fleet.holds([1, 2, 3, 4], {})
            assert fleet.held([1, 2, 3, 4], Tier.CPU) == {0: 2}

    run(body)


def test_a_lost_batch_is_replayed() -> None:
    async def body() -> None:
        publisher = publishing()
        async with followed(endpoint(publisher)) as fleet:
            await fleet.known()
            publisher.publish([stored(1, [1, 2])])
            await fleet.holds([1, 2, 3, 4], {0: 2})
            publisher.send(b"\x93\xcb" + bytes(8) + b"\x91\x81\xa4type\xb0AllBlocksCleared\xc0", lost=True)
            publisher.publish([stored(3, [3, 4])])
            await fleet.holds([1, 2], {})
            await fleet.known()
            assert fleet.held([3, 4]) == {0: 2}
            await until(lambda: fleet.cache.statuses()[0].gaps == 1)

    run(body)


def test_a_lost_batch_that_cannot_be_had_leaves_the_endpoint_unsure_and_empty() -> None:
    async def body() -> None:
        publisher = publishing(replay_port=None)
        async with followed(endpoint(publisher, replay=False)) as fleet:
            await heard(fleet, publisher)
            publisher.publish([CLEARED, stored(1, [1, 2])])
            await fleet.holds([1, 2, 3, 4], {0: 2})
            publisher.send(b"", lost=True)
            publisher.publish([stored(2, [3, 4], parent=1)])
            await until(lambda: fleet.why() == "gap")
            assert fleet.held([1, 2, 3, 4]) == {}
            publisher.publish([CLEARED, stored(1, [1, 2])])
            await fleet.holds([1, 2, 3, 4], {0: 2})
            assert fleet.held([1, 2], Tier.CPU) == {}, "of the CPU tier, nothing is known yet"
            assert Slot(0) not in fleet.cache.modes(Tier.CPU)

    run(body)


def test_a_publisher_that_restarts_is_followed_from_its_new_start() -> None:
    async def body() -> None:
        first = publishing()
        async with followed(endpoint(first)) as fleet:
            first.publish([stored(1, [1, 2])])
            await fleet.holds([1, 2], {0: 2})
            OPENED.remove(first)
            first.close()
            await until(lambda: fleet.why() == "not connected")
            assert fleet.held([1, 2]) == {}, "who cannot be heard is not known"
            second = publishing(first.port, first.replay_port)
            second.publish([stored(7, [5, 6])])
            await fleet.known()
            assert (fleet.held([1, 2]), fleet.held([5, 6])) == ({}, {0: 2})
            await until(lambda: fleet.cache.statuses()[0].restarts == 1, "the restart is counted")

    run(body)


def test_endpoints_come_and_go_and_leave_nothing_to_the_next_in_their_slot() -> None:
    async def body() -> None:
        one, other = publishing(), publishing()
        one.publish([stored(1, [1, 2])])
        other.publish([stored(1, [3, 4])])
        async with followed(endpoint(one)) as fleet:
            await fleet.known()
            fleet.pool.replace([endpoint(other, number=8001)])
            assert fleet.held([1, 2]) == {}
            await fleet.known()
            assert (fleet.held([1, 2]), fleet.held([3, 4])) == ({}, {0: 2})
            await until(lambda: len(fleet.cache.index) == 1, "what the first held is gone")

    run(body)


def test_a_follower_that_dies_is_restarted_and_no_endpoint_is_known_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        publisher = publishing()
        publisher.publish([stored(1, [1, 2])])
        async with followed(endpoint(publisher)) as fleet:
            await fleet.known()
            pid = fleet.feed.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda: fleet.feed.restarts == 1)
            assert fleet.held([1, 2]) == {}
            await fleet.known()
            assert fleet.held([1, 2]) == {0: 2}
            assert fleet.feed.pid != pid

    run(body)
    assert "FollowerDied" in caplog.text


def test_the_follower_ends_with_the_picker() -> None:
    async def body() -> int:
        async with followed(Endpoint(f"{LOOPBACK}:8000", labels={PORT: "1"})) as fleet:
            await until(lambda: fleet.feed.pid is not None)
            return fleet.feed.pid or 0

    pid = asyncio.run(body())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


PICKER = """
import asyncio
from epp.kvevents.feed import open_feed
from epp.pool.pool import Pool
from scorers.precise.producer import PrecisePrefixProducer

async def run() -> None:
    producer = PrecisePrefixProducer()
    feed = open_feed(producer.new_cache(), producer.parameters.kv_events_config, Pool())
    feed.start()
    while feed.pid is None:
        await asyncio.sleep(0.01)
    print(feed.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(run())
"""


def test_the_follower_ends_with_a_picker_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PICKER], stdout=subprocess.PIPE, text=True, cwd=ROOT) as picker:
        assert picker.stdout is not None
        pid = int(picker.stdout.readline())
        picker.kill()

    def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    asyncio.run(until(gone, "the follower is gone"))


@pytest.mark.parametrize(
    "payload", [b"", b"\xff" * 100, b"\x93\x01\x02", b"\x92\xc0\xc0", b"\x91" * 5000, b"\xdd\xff\xff\xff\xff"]
)
def test_whatever_a_publisher_sends_costs_the_others_nothing(payload: bytes) -> None:
    async def body() -> None:
        hostile, honest = publishing(), publishing()
        async with followed(endpoint(hostile), endpoint(honest, number=8001)) as fleet:
            await fleet.known(0)
            await fleet.known(1)
            hostile.publish([stored(1, [1, 2])])
            await fleet.holds([1, 2], {0: 2})
            hostile.send(payload)
            await until(lambda: fleet.why(0) == "unreadable")
            honest.publish([stored(1, [1, 2])])
            await fleet.holds([1, 2], {1: 2})
            await until(lambda: fleet.feed.counts.counts.get("unreadable") == 1)

    run(body)


def test_publishers_that_connect_to_us_are_distinguished_by_their_topics() -> None:
    async def body() -> None:
        import zmq

        with zmq.Context() as context, context.socket(zmq.PUB) as pub:
            port = pub.bind_to_random_port(f"tcp://{LOOPBACK}")
            pub.unbind(f"tcp://{LOOPBACK}:{port}")
            settings = KvEventsConfig(zmq_endpoint=f"tcp://{LOOPBACK}:{port}")
            endpoints = [Endpoint(f"{LOOPBACK}:{number}") for number in (8000, 8001)]
            async with followed(*endpoints, settings=settings) as fleet:
                pub.connect(f"tcp://{LOOPBACK}:{port}")
                import msgspec

                batch = msgspec.msgpack.encode([0.0, [stored(1, [1, 2])]])

                def spoken() -> bool:  # until the connection is there, batches are lost
                    for address in endpoints:
                        pub.send_multipart([f"kv@{address.address}@m".encode(), bytes(8), batch])
                    pub.send_multipart([b"kv@10.9.9.9:1@m", bytes(8), batch])
                    return fleet.held([1, 2]) == {0: 2, 1: 2}

                await until(spoken)
                await until(lambda: (fleet.feed.counts.counts.get("other_topics") or 0) > 0)

    run(body)


def test_a_follower_that_hangs_is_taken_for_dead() -> None:
    async def body() -> None:
        publisher = publishing()
        publisher.publish([stored(1, [1, 2])])
        async with followed(endpoint(publisher), silent_s=3.0) as fleet:
            await fleet.known()
            pid = fleet.feed.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: fleet.feed.pid not in (pid, None), "another one follows")
            await fleet.known()
            assert fleet.held([1, 2]) == {0: 2}

    run(body)


def test_unreadable_batches_are_requested_again_more_and_more_rarely() -> None:
    async def body() -> None:
        publisher, now_s = publishing(), [1000.0]
        publisher.send(b"poison")
        subscriber = Subscriber(Start(bytes(32), ""), lambda _: None, lambda: now_s[0])
        wire = Wire(f"tcp://{LOOPBACK}:{publisher.port}", f"tcp://{LOOPBACK}:{publisher.replay_port}")
        subscriber.command(Follow(0, f"{LOOPBACK}:8000", (wire,)))
        stream = subscriber._sources[0].streams[0]

        async def settled() -> None:
            async with asyncio.timeout(20):
                while stream.why is not Incomplete.UNREADABLE:
                    subscriber.step(0.01)
                    await asyncio.sleep(0)  # for the publisher's answer

        await settled()
        for _ in range(7200):
            now_s[0] += 1.0
            subscriber.step(0.0)
            await settled()
        assert 5 <= subscriber._tally.replays <= 12, "in two hours; every 30 s were 240"
        subscriber.close()

    run(body)


def test_more_publishers_can_be_followed_than_a_context_of_zeromq_has_sockets_by_default() -> None:
    subscriber = Subscriber(Start(bytes(32), ""), lambda _: None)
    try:
        for source in range(600):
            subscriber.command(Follow(source, f"10.0.0.1:{source}", (Wire("tcp://127.0.0.1:1"),)))
        subscriber.step(0.0)
    finally:
        subscriber.close()


def test_a_port_without_a_publisher_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [1000.0]

    async def body() -> None:
        publisher = publishing()
        wrong = publisher.port
        OPENED.pop().close()
        async with followed(Endpoint(f"{LOOPBACK}:8000", labels={PORT: str(wrong)})) as fleet:
            fleet.cache.clock = lambda: now_s[0]
            await until(lambda: fleet.why() == "not connected")

            def named() -> bool:
                now_s[0] += 1.0
                return f"nobody publishes at tcp://{LOOPBACK}:{wrong}" in caplog.text

            await until(named, "the log names the port")
            assert f"endpoint {LOOPBACK}:8000: no KV events for 10 s" in caplog.text

    run(body)
