from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from epp.lab.engine.engine import Engine
from epp.lab.engine.job import Job
from epp.lab.fleet.page import EnginePage
from epp.lab.fleet.scraped import Rounds, ScrapedEngine, Scraping
from scorers.base import Tier
from tests.epp.lab.fleet.small import SMALL

SCRAPING = Scraping(interval_s=0.5, lag_s=0.125)


def submit(engine: Engine, scraped: ScrapedEngine, name: str, at: float) -> None:
    scraped.before(at)
    engine.submit(Job(name, (), 100, 500), at)


def test_the_picker_sees_an_engine_as_it_was_at_the_last_scrape() -> None:
    engine = Engine(SMALL)
    scraped = ScrapedEngine(engine, SCRAPING, phase_s=0.25)
    seen = {}
    for at, name in ((0.3, "a"), (0.9, "b")):
        submit(engine, scraped, name, at)
        seen[at] = scraped.visible(at)
    assert (seen[0.3].began_at, seen[0.3].metrics.running) == (0.0, 0)  # that of 0.25 is still on its way
    assert (seen[0.9].began_at, seen[0.9].metrics.running) == (0.75, 1)
    assert (scraped.visible(1.37).began_at, scraped.visible(1.37).metrics.running) == (0.75, 1)
    assert (scraped.visible(1.38).began_at, scraped.visible(1.38).metrics.waiting) == (1.25, 1)


def test_a_scrape_on_its_way_is_not_changed_by_what_happens_meanwhile() -> None:
    engine = Engine(SMALL)
    scraped = ScrapedEngine(engine, SCRAPING, phase_s=0.25)
    submit(engine, scraped, "a", 0.3)
    submit(engine, scraped, "b", 0.8)  # after the scrape of 0.75 began, before it is read at 0.875
    assert scraped.visible(0.875).metrics.running + scraped.visible(0.875).metrics.waiting == 1


def test_engines_tell_of_their_tiers_or_do_not() -> None:
    engine = Engine(SMALL)
    assert EnginePage(engine, tells_tiers=False).metrics.tiers == {}
    told = EnginePage(engine, tells_tiers=True).metrics.tiers
    assert told[Tier.GPU].capacity_tokens == SMALL.gpu_blocks * SMALL.block_tokens
    assert told[Tier.CPU].capacity_tokens == SMALL.cpu_blocks * SMALL.block_tokens
    assert told[Tier.CPU].horizon_s == float("-inf")


@given(
    st.lists(st.integers(0, 63).map(lambda n: n / 128), min_size=1, max_size=8),
    st.lists(st.integers(0, 200).map(lambda n: n / 128), max_size=20),
)
def test_looking_at_those_with_new_scrapes_finds_all_of_them(phases: list[float], gaps: list[float]) -> None:
    engines = [Engine(SMALL) for _ in phases]
    scraped = [ScrapedEngine(engine, SCRAPING, phase) for engine, phase in zip(engines, phases, strict=True)]
    rounds = Rounds(SCRAPING, phases)
    known = [-1.0] * len(phases)
    now = 0.0
    for gap in gaps:
        now += gap
        for n in rounds.since_last(now):
            known[n] = scraped[n].visible(now).began_at
        assert known == [each.visible(now).began_at for each in scraped]
