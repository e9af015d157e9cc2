"""The proxy dies under load, or the whole router does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from epp.ports.claim import claim
from tests.e2e.site.chaos import LOOPBACK, ROOT, Mode, site
from tests.e2e.site.fragile import FragileEngine
from tests.e2e.site.storm import Fate, Storm, executed

pytestmark = pytest.mark.e2e
CLIENTS = 12


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_a_proxy_that_is_killed_is_back_and_leaves_nothing_in_the_picker(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode) as here:
            storm = here.storm
            with storm.raging(CLIENTS):
                for restarts in (1, 2):
                    await storm.more(50)
                    with storm.broken("no proxy", Fate.UNCONNECTED, Fate.UNANSWERED, Fate.TRUNCATED):
                        pid = here.proxy.statistics().pid
                        assert pid is not None
                        os.kill(pid, signal.SIGKILL)
                        await storm.until(
                            lambda restarts=restarts: (
                                here.proxy.statistics().restarts == restarts and here.proxy.statistics().pid is not None
                            ),
                            "it is started again",
                        )
                        await storm.more(1)
                await storm.more(50)
            await storm.ended()
            assert storm.unexplained() == []
            assert max(executed(here.engines).values()) == 1
            await here.settled()

    asyncio.run(scenario())


def test_the_whole_command_is_killed_and_started_again_on_the_same_ports(tmp_path: Path) -> None:
    async def scenario() -> None:
        engines = [FragileEngine(), FragileEngine()]
        for engine in engines:
            await engine.start()
        port, metrics, admin = (claim(LOOPBACK, 0, "--port") for _ in range(3))
        flags = [f"--endpoint={engine.address}" for engine in engines]
        flags += [f"--port={port}", f"--metrics-port={metrics}", f"--admin-port={admin}", f"--host={LOOPBACK}"]
        storm = Storm(port)

        async def started() -> asyncio.subprocess.Process:
            with (tmp_path / "router.log").open("ab") as log:
                return await asyncio.create_subprocess_exec(
                    *[sys.executable, "-m", "epp.commandline.cli", "standalone", *flags], stderr=log, cwd=ROOT
                )

        router = await started()
        try:
            with storm.raging(CLIENTS):
                with storm.broken("not started", Fate.UNCONNECTED):
                    await storm.more(1)
                await storm.more(50)
                with storm.broken("killed", Fate.UNCONNECTED, Fate.UNANSWERED, Fate.TRUNCATED):
                    router.kill()
                    await router.wait()
                    router = await started()
                    await storm.more(1)
                await storm.more(50)
            await storm.ended()
            assert storm.unexplained() == []
            assert max(executed(engines).values()) == 1
            router.terminate()
            assert await router.wait() == 0
        finally:
            if router.returncode is None:
                router.kill()
                await router.wait()
            for engine in engines:
                engine.die()
        assert "Traceback" not in (tmp_path / "router.log").read_text()

    asyncio.run(scenario())
