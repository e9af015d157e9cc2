"""The demo's processes: real ones, ended when the context is left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from epp.lab.demo import load
from epp.lab.demo.arms import Arm, arms
from epp.lab.demo.counters import Watch
from epp.lab.demo.stack import DemoError, child, router, simulated
from epp.lab.demo.workload import Workload

SMALL = Workload(groups=2, prompts_per_group=4, system_tokens=100, output_tokens=2, concurrency=1)


def test_a_command_that_ends_at_once_is_shown_with_its_output(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def never() -> bool:
            return False

        async with child(tmp_path, "sim", "--preset=gpt-7") as sim:
            await sim.until(never)

    with pytest.raises(DemoError, match=r"(?s)tierwise sim ended with status 2.*there is no such preset"):
        asyncio.run(scenario())


def test_simulated_endpoints_are_gone_when_the_context_is_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with aiohttp.ClientSession() as session:
            async with simulated(tmp_path, 2, "demo") as addresses:
                assert len(set(addresses)) == 2
                for address in addresses:
                    async with session.get(f"http://{address}/health") as response:
                        assert response.status == 200
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://{addresses[0]}/health")

    asyncio.run(scenario())


@pytest.mark.e2e
def test_the_baseline_takes_the_endpoints_in_turn(tmp_path: Path) -> None:
    baseline = arms()[0]

    async def scenario() -> None:
        async with through(tmp_path, baseline) as counted:
            assert [counters.requests for counters in counted.now.values()] == [4, 4]

    asyncio.run(scenario())


@pytest.mark.e2e
def test_the_picker_keeps_a_group_where_its_prefix_is(tmp_path: Path) -> None:
    tier_aware = arms(cpu_blocks=4100)[-1]

    async def scenario() -> None:
        async with through(tmp_path, tier_aware) as counted:
            assert counted.total.requests == 8
            assert counted.total.gpu_tokens == 6 * 96  # all but the first of each group, at block granularity

    asyncio.run(scenario())


@asynccontextmanager
async def through(folder: Path, arm: Arm) -> AsyncIterator[Watch]:
    """Yield the counters of two fresh endpoints after the small workload, sent one by one as ``arm`` chooses."""
    async with (
        simulated(folder, 2, "demo") as addresses,
        router(folder, arm, addresses, None) as url,
        aiohttp.ClientSession() as session,
    ):
        watch = Watch(session, addresses)
        await watch.read()
        samples = await load.run(url, "Qwen/Qwen3-32B", SMALL.prompts(arm.name), 1, lambda _: None)
        assert [sample.error for sample in samples] == [""] * 8
        await watch.read()
        yield watch
