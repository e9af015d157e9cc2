"""Endpoints end before or during an answer, stop answering, vanish all together and come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.site.chaos import Mode, eventually, site
from tests.e2e.site.fragile import Mood
from tests.e2e.site.storm import Fate, Storm, executed

pytestmark = pytest.mark.e2e
CLIENTS = 12
RESET = "reset before headers"
"""The sentence of the proxy for a connection that ended before its answer."""
both_modes = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)


def failed_numbers(storm: Storm) -> set[int]:
    """Return the numbers of the requests that were not answered."""
    return {result.number for result in storm.results if result.fate is not Fate.ANSWERED}


@both_modes
def test_an_endpoint_that_dies_before_its_headers_costs_the_requests_that_it_had_begun_and_no_other(
    tmp_path: Path, mode: Mode
) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode) as here:
            storm, dying = here.storm, here.engines[0]
            with storm.raging(CLIENTS):
                with storm.broken("dies before headers", Fate.REFUSED, says=RESET):
                    dying.mood = Mood.DIES_BEFORE_HEADERS
                    await storm.until(lambda: storm.explained("dies before headers"), "one has died")
                    dying.die()
                await storm.more(50)
            await storm.ended()
            assert storm.unexplained() == []
            assert failed_numbers(storm).isdisjoint(executed(here.engines[1:])), "nobody else's"
            assert max(executed(here.engines).values()) == 1, "a prompt is not computed twice"
            await here.settled()

    asyncio.run(scenario())


@both_modes
def test_an_endpoint_that_dies_mid_stream_breaks_off_its_own_answers_and_no_other(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode) as here:
            storm, dying = here.storm, here.engines[0]
            with storm.raging(CLIENTS):
                # Refused where the connection ends while the picker still looks at the response's headers.
                with storm.broken("dies mid-stream", Fate.TRUNCATED, Fate.REFUSED, says=RESET):
                    dying.mood = Mood.DIES_MID_STREAM
                    await storm.until(lambda: len(storm.explained("dies mid-stream")) >= 10, "some have died")
                    with storm.broken("killed", Fate.TRUNCATED, Fate.REFUSED, says=RESET):
                        dying.die()
                        await storm.more(20)
                await storm.more(50)
            await storm.ended()
            assert storm.unexplained() == []
            assert failed_numbers(storm).isdisjoint(executed(here.engines[1:])), "nobody else's"
            assert max(executed(here.engines).values()) == 1, "a prompt is not computed twice"
            await here.settled()

    asyncio.run(scenario())


@both_modes
def test_an_endpoint_that_falls_silent_gets_nothing_new_and_answers_what_it_has_when_it_wakes(
    tmp_path: Path, mode: Mode
) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode) as here:
            storm, silent = here.storm, here.engines[0]

            async def is_spared() -> bool:
                return not (await here.picker.fresh())[silent.address]

            with storm.raging(CLIENTS):
                await storm.more(20)
                silent.mood = Mood.SILENT
                await storm.until(lambda: silent.running, "it has a request")
                await eventually(is_spared, bool, "its silence is noticed")
                had = silent.begun.total()
                with storm.raging(CLIENTS):  # all of the first may wait for it
                    await storm.more(100)
                assert silent.begun.total() <= had + 1, "one may have been on its way when it was noticed"
                silent.recover()
                await eventually(is_spared, lambda spared: not spared, "it is believed again")
                await storm.until(lambda: silent.begun.total() > had + 1, "it gets requests again")
            await storm.ended()
            assert storm.fates().keys() == {Fate.ANSWERED}
            assert max(executed(here.engines).values()) == 1
            await here.settled()

    asyncio.run(scenario())


@both_modes
def test_all_endpoints_gone_and_back_refuses_only_meanwhile(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode) as here:
            storm = here.storm
            with storm.raging(CLIENTS):
                for _ in range(2):
                    await storm.more(30)
                    with storm.broken("no endpoint", Fate.REFUSED, Fate.TRUNCATED):
                        for engine in here.engines:
                            engine.die()
                        before = len(storm.results)
                        await storm.until(lambda before=before: len(storm.results) >= before + 30, "refusals")
                        for engine in here.engines:
                            await engine.start()
                    await storm.more(30)
            await storm.ended()
            assert storm.unexplained() == []
            refused = [r for r in storm.explained("no endpoint") if r.fate is Fate.REFUSED]
            assert {result.status for result in refused} == {503}
            assert max(executed(here.engines).values()) == 1
            await here.settled()

    asyncio.run(scenario())


@both_modes
def test_one_survivor_of_six_answers_everything(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode, engines=6) as here:
            storm, survivor = here.storm, here.engines[3]
            for engine in here.engines:
                if engine is not survivor:
                    engine.die()
            with storm.raging(CLIENTS):
                await storm.more(100)
                await eventually(here.picker.fresh, lambda fresh: sum(fresh.values()) == 1, "five are known to be gone")
                await storm.more(100)
                for engine in here.engines:
                    if engine is not survivor:
                        await engine.start()
                        await storm.more(20)
            await storm.ended()
            assert storm.fates().keys() == {Fate.ANSWERED}
            await here.settled()

    asyncio.run(scenario())
