"""The picker dies, hangs or is replaced under load, with the real Envoy, in both configurations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from epp.server.settings import Transport
from tests.e2e.site.chaos import Mode, Site, eventually, site
from tests.e2e.site.storm import Fate, executed

pytestmark = pytest.mark.e2e
CLIENTS = 12


async def killed_and_restarted(here: Site, *fates: Fate) -> None:
    """Kill and restart the picker twice under load; ``fates`` are the results that requests may have meanwhile."""
    storm = here.storm
    with storm.raging(CLIENTS, size=100_000):
        for _ in range(2):
            await storm.more(50)
            with storm.broken("no picker", *fates, says="") as away:
                await here.picker.kill()
                before = len(storm.results)
                await storm.until(lambda before=before: len(storm.results) >= before + 50, "requests without a picker")
                await here.picker.start()
                # Until each of the proxy's threads has found the new one: connecting takes it a moment.
                await eventually(
                    lambda: here.picker.metric("tierwise_wire_streams_total"), lambda n: n >= 50, "it is asked again"
                )
            assert away.until > away.since
        await storm.more(50)
    await storm.ended()


@pytest.mark.parametrize("transport", list(Transport), ids=lambda transport: transport.value)
def test_standalone_that_fails_open_answers_everything_while_the_picker_is_killed_and_restarted(
    tmp_path: Path, transport: Transport
) -> None:
    async def scenario() -> None:
        async with site(tmp_path, transport=transport) as here:
            await killed_and_restarted(here)
            assert here.storm.fates().keys() == {Fate.ANSWERED}
            assert max(executed(here.engines).values()) == 1
            await here.settled()

    asyncio.run(scenario())


def test_standalone_that_fails_closed_refuses_with_503_exactly_while_the_picker_is_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with site(tmp_path, fail_open=False) as here:
            await killed_and_restarted(here, Fate.REFUSED, Fate.TRUNCATED)
            assert here.storm.unexplained() == []
            refused = [r for r in here.storm.explained("no picker") if r.fate is Fate.REFUSED]
            assert {result.status for result in refused} == {503}
            assert max(executed(here.engines).values()) == 1
            await here.settled()

    asyncio.run(scenario())


def test_full_duplex_breaks_only_what_is_under_way_while_the_picker_is_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with site(tmp_path, Mode.DUPLEX) as here:
            await killed_and_restarted(here, Fate.REFUSED, Fate.TRUNCATED)
            assert here.storm.unexplained() == []
            refused = [r for r in here.storm.explained("no picker") if r.fate is Fate.REFUSED]
            assert {result.status for result in refused} == {503}
            assert max(executed(here.engines).values()) == 1
            await here.settled()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("mode", "fail_open", "fates"),
    [
        (Mode.STANDALONE, True, set()),
        (Mode.STANDALONE, False, {Fate.REFUSED, Fate.TRUNCATED}),
        (Mode.DUPLEX, False, {Fate.REFUSED, Fate.TRUNCATED}),
    ],
    ids=["standalone, open", "standalone, closed", "full duplex"],
)
def test_a_picker_that_stands_still_costs_no_more_than_its_time_and_goes_on_afterwards(
    tmp_path: Path, mode: Mode, fail_open: bool, fates: set[Fate]
) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode, fail_open=fail_open, picker_timeout_s=0.5) as here:
            storm = here.storm
            with storm.raging(CLIENTS):
                await storm.more(50)
                with storm.broken("frozen", *fates):
                    here.picker.freeze()
                    before = len(storm.results)
                    await storm.until(lambda: len(storm.results) >= before + 2 * CLIENTS, "requests without a picker")
                    here.picker.thaw()
                    await eventually(here.picker.ready, bool, "it answers again")
                    await storm.more(10)
                await storm.more(50)
            await storm.ended()
            assert storm.unexplained() == []
            assert {r.status for r in storm.explained("frozen") if r.fate is Fate.REFUSED} <= {503}
            assert bool(storm.explained("frozen")) == bool(fates)
            assert max(executed(here.engines).values()) == 1
            await here.settled()

    asyncio.run(scenario())
