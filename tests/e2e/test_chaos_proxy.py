"""The proxy dies under load, or the whole router does."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.chaos import Mode, site
from tests.e2e.storm import Fate, executed

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
