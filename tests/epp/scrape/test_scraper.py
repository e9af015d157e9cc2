"""The scraper against engines on real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from epp.decision import Cause
from epp.errors import ConfigError
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, Pool
from epp.ports.tls import write_self_signed
from epp.scrape.pace import Pace
from epp.scrape.parameters import ScrapeParameters
from epp.scrape.scraper import Scraper
from epp.scrape.target import Target
from scorers.base import Candidate, Silence, Slot
from tests.epp.scrape.engines import Reports, endless, engine, mute, page
from tests.epp.scrape.servers import server

FAST = Pace(busy_s=0.005, idle_s=0.02, staleness_s=0.03, timeout_s=0.1)
PATIENCE_S = 20
PATIENT = Pace(busy_s=0.005, idle_s=0.02, staleness_s=0.03, timeout_s=10)


@dataclass
class Clock:
    """A clock that stands still, so that nothing is late however busy the machine is."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Stage:
    """A pool, its ledger and a running scraper."""

    pool: Pool
    ledger: Ledger
    scraper: Scraper
    reports: Reports
    ended: list[tuple[int, Cause]]

    def candidate(self, address: str) -> Candidate:
        found = self.pool.candidate(address)
        assert found is not None
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` is true, checked at every turn of the loop."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - over real sockets, nobody has an event for every condition
                await asyncio.sleep(0.001)

    def errors(self) -> dict[tuple[str, ...], float]:
        return {
            labels: value
            for reading in self.scraper.readings()
            if reading.name == "tierwise_scrape_errors"
            for labels, value in reading.samples
        }


@asynccontextmanager
async def stage(
    *addresses: str,
    pace: Pace = FAST,
    parameters: ScrapeParameters | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Stage]:
    pool, ended, reports = Pool(), list[tuple[int, Cause]](), Reports()
    pool.listeners.append(reports)
    ledger = Ledger(pool)
    pool.replace([Endpoint(address) for address in addresses])

    def end(pick_id: int, cause: Cause) -> None:
        ended.append((pick_id, cause))
        ledger.close(pick_id, cause)

    scraper = Scraper(pool, ledger, parameters or ScrapeParameters(), pace, ended=end, clock=clock)
    await scraper.start()
    try:
        yield Stage(pool, ledger, scraper, reports, ended)
    finally:
        await scraper.stop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if "_scrape" in repr(task)]


async def patiently(reports: Reports) -> Candidate:
    async with asyncio.timeout(PATIENCE_S):
        return await reports.heard.get()


def dead_address() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


def test_what_engines_say_reaches_the_pool_again_and_again_over_one_connection_each() -> None:
    async def scenario() -> None:
        async with engine() as one, engine() as two, stage(one.address, two.address, pace=PATIENT, clock=Clock()) as s:
            await s.until(lambda: min(one.reads, two.reads) > 5)
            seen = s.candidate(one.address)
            assert (seen.fresh, seen.block_tokens) == (True, 16)
            assert seen.running == seen.gpu_blocks
            assert {len(one.connections), len(two.connections)} == {1}

    asyncio.run(scenario())


def test_dead_and_silent_endpoints_do_not_delay_others() -> None:
    async def scenario() -> None:
        dead = dead_address()
        with mute() as silent:
            async with engine() as alive, stage(alive.address, silent, dead, pace=PATIENT, clock=Clock()) as s:
                await s.until(lambda: s.errors().get((dead, "connection"), 0) > 2 and alive.reads > 2)
                assert s.errors().keys() == {(dead, "connection")}, "the silent one is still being asked"
                assert [s.candidate(a).fresh for a in (alive.address, silent, dead)] == [True, False, False]

    asyncio.run(scenario())


def test_dead_and_silent_endpoints_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        dead = dead_address()
        with mute() as silent:
            async with stage(silent, dead) as s:
                await s.until(lambda: sum(r.levelno == logging.WARNING for r in caplog.records) == 2)
                counted = {(dead, "connection"), (silent, "timeout")}
                await s.until(lambda: counted == s.errors().keys() and min(s.errors().values()) > 3)
                assert [s.candidate(a).fresh for a in (silent, dead)] == [False, False]

    asyncio.run(scenario())
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert all("no metrics for" in text for text in warnings)


def test_an_endpoint_that_could_not_answer_yet_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = Clock()
        with mute() as silent:
            async with stage(silent, pace=PATIENT, clock=clock) as s:
                clock.now_s += 100.0  # the cores were busy
                looks = [s.scraper._targets[silent].stale_timer]
                for _ in range(3):
                    await s.until(lambda: s.scraper._targets[silent].stale_timer is not looks[-1])
                    looks.append(s.scraper._targets[silent].stale_timer)

    asyncio.run(scenario())
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == []


OF_AN_OUTAGE = (
    "it is out of reach: http://",
    "no endpoint answers: requests get 503 until one does",
    "its metrics are read again",
    "answers: for 10 s no endpoint did",
)


def test_an_endpoint_that_goes_and_comes_back_is_stale_meanwhile_and_keeps_its_last_numbers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        clock = Clock()
        async with engine() as first:
            address = first.address
            context = stage(address, pace=PATIENT, clock=clock)
            s = await context.__aenter__()
            await s.until(lambda: s.candidate(address).fresh)
        await s.until(lambda: not s.candidate(address).fresh)
        assert s.candidate(address).silence is Silence.GONE
        assert s.candidate(address).running > 0
        clock.now_s += 10.0
        async with engine(address=address):
            await s.until(lambda: s.candidate(address).fresh)
            await context.__aexit__(None, None, None)

    asyncio.run(scenario())
    lines = [(r.levelname, r.getMessage()) for r in caplog.records if r.name.startswith("epp.scrape")]
    assert [level for level, _ in lines] == ["WARNING", "ERROR", "INFO", "WARNING"]
    assert [text for words, (_, text) in zip(OF_AN_OUTAGE, lines, strict=True) if words not in text] == []
    assert not any("others are preferred" in text for _, text in lines), "there is no other"


@pytest.mark.parametrize("uptime_s", [0.0, 1000.0, 1700.0, 1900.0, 3500.0])
def test_the_first_reading_comes_at_once_whatever_the_clock_says(uptime_s: float) -> None:
    async def scenario() -> None:
        began = time.monotonic()
        slow = Pace(busy_s=0.01, idle_s=3600)
        async with (
            engine() as one,
            stage(one.address, pace=slow, clock=lambda: time.monotonic() - began + uptime_s) as s,
        ):
            await patiently(s.reports)

    asyncio.run(scenario())


def test_a_pick_brings_the_next_reading_forward() -> None:
    async def scenario() -> None:
        slow = Pace(busy_s=0.01, idle_s=3600)
        async with engine() as one, stage(one.address, pace=slow) as s:
            await patiently(s.reports)
            reads = one.reads
            s.ledger.open(s.candidate(one.address), 10, time.monotonic())
            await s.until(lambda: one.reads > reads + 3)

    asyncio.run(scenario())


def test_an_endpoint_that_was_not_read_for_long_is_read_at_once_when_a_pick_lands_there() -> None:
    async def scenario() -> None:
        clock = Clock()
        pace = Pace(busy_s=3600, idle_s=7200, staleness_s=7200)
        async with engine() as one, stage(one.address, pace=pace, clock=clock) as s:
            await s.until(lambda: s.candidate(one.address).fresh and one.reads == 1)
            await s.until(lambda: s.scraper._targets[one.address].timer is not None)
            clock.now_s += 3600
            s.ledger.open(s.candidate(one.address), 10, clock())
            await s.until(lambda: one.reads == 2)

    asyncio.run(scenario())


def test_without_requests_the_pace_is_the_idle_one_again() -> None:
    async def scenario() -> None:
        slow = Pace(busy_s=0.01, idle_s=3600)
        async with engine() as one, stage(one.address, pace=slow) as s:
            await patiently(s.reports)
            pick_id = s.ledger.open(s.candidate(one.address), 10, time.monotonic())
            await patiently(s.reports)
            s.ledger.close(pick_id, Cause.COMPLETED)

            def interval_s() -> float:
                return next(value for r in s.scraper.readings() if "interval" in r.name for _, value in r.samples)

            await s.until(lambda: interval_s() > 0.3)

    asyncio.run(scenario())


def test_what_an_engine_has_lost_is_given_back() -> None:
    async def scenario() -> None:
        async def idle(_: int) -> web.StreamResponse:
            return web.Response(text=page(running=0))

        began = time.monotonic()
        hurried = lambda: began + 2000 * (time.monotonic() - began)  # noqa: E731
        async with engine(idle) as one, stage(one.address, clock=hurried) as s:
            await s.until(lambda: s.candidate(one.address).fresh)
            pick_id = s.ledger.open(s.candidate(one.address), 10, hurried())
            await s.until(lambda: bool(s.ended))
            assert s.ended == [(pick_id, Cause.RECONCILED)]
            assert s.candidate(one.address).in_flight == 0

    asyncio.run(scenario())


def test_a_removed_endpoint_is_read_no_more_and_one_that_takes_its_slot_has_its_own_numbers() -> None:
    async def scenario() -> None:
        async with engine() as one, engine() as two, stage(one.address) as s:
            await patiently(s.reports)
            s.pool.replace([Endpoint(two.address)])
            reads = one.reads
            await s.until(lambda: two.reads > 5)
            assert one.reads <= reads + 1
            assert s.candidate(two.address).slot == 0

    asyncio.run(scenario())


async def one_page(writer: asyncio.StreamWriter, _: int) -> bool:
    body = page(running=1).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    return True


def test_a_removed_endpoint_has_no_connection_and_one_that_is_read_elsewhere_only_there() -> None:
    async def scenario() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            server(one_page) as one,
            server(one_page) as two,
            stage(pace=PATIENT) as s,
        ):
            s.pool.replace([Endpoint(one.address)])
            await s.until(lambda: len(one.heads) > 3)
            s.pool.replace([Endpoint(one.address, metrics_url=two.url)])
            await one.until_all_are_closed()
            await s.until(lambda: len(two.heads) > 3)
            s.pool.replace([])
            await two.until_all_are_closed()
            assert one.connections == two.connections == 1

    asyncio.run(scenario())


def test_a_url_with_a_password_is_read_with_it() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), server(one_page) as one, stage() as s:
            s.pool.replace([Endpoint(one.address, metrics_url=one.url.replace("://", "://user:word@"))])
            await patiently(s.reports)
            assert "Authorization: Basic dXNlcjp3b3Jk" in one.heads[0]

    asyncio.run(scenario())


def test_a_metrics_url_that_is_none_is_counted() -> None:
    async def scenario() -> None:
        async with stage() as s:
            for url in ("ftp://127.0.0.1/metrics", "metrics", "http://127.0.0.1:99999/", "http:///metrics"):
                s.pool.replace([])
                s.pool.replace([Endpoint("127.0.0.1:1", metrics_url=url)])
                await s.until(lambda: bool(s.errors()))
                assert {reason for _, reason in s.errors()} <= {"page", "connection"}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (endless, "size"),
        (lambda _: respond(web.Response(status=500)), "status"),
        (lambda _: respond(web.Response(status=302, headers={"Location": "http://127.0.0.1/"})), "status"),
        (lambda _: respond(web.Response(text="hello")), "page"),
        (lambda _: respond(web.Response(text="vllm:num_requests_running x")), "page"),
    ],
)
def test_pages_that_cannot_be_used_are_counted_by_reason(answer: Callable[[int], object], reason: str) -> None:
    async def scenario() -> None:
        async with engine(answer) as one, stage(one.address, pace=PATIENT) as s:  # type: ignore[arg-type]
            await s.until(lambda: (one.address, reason) in s.errors())
            assert not s.candidate(one.address).fresh

    asyncio.run(scenario())


async def respond(response: web.Response) -> web.StreamResponse:
    return response


def test_an_endpoint_may_have_its_metrics_elsewhere() -> None:
    async def scenario() -> None:
        async with engine() as one, stage() as s:
            s.pool.replace([Endpoint("127.0.0.1:1", metrics_url=f"http://{one.address}/metrics")])
            assert (await patiently(s.reports)).address == "127.0.0.1:1"

    asyncio.run(scenario())


def test_a_metrics_port_of_its_own_stands_for_the_serving_port() -> None:
    async def scenario() -> None:
        async with engine() as one:
            port = int(one.address.rpartition(":")[2])
            async with stage("127.0.0.1:1", parameters=ScrapeParameters(port=port)) as s:
                assert (await patiently(s.reports)).address == "127.0.0.1:1"

    asyncio.run(scenario())


@pytest.mark.parametrize(("trusted", "reason"), [(None, None), (True, None), (False, "connection")])
def test_pages_over_tls_with_a_certificate_that_is_not_checked_trusted_or_refused(
    tmp_path: Path, trusted: bool | None, reason: str | None
) -> None:
    write_self_signed(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    parameters = ScrapeParameters(
        scheme="https",
        insecure_skip_verify=trusted is None,
        ca_cert_path=str(tmp_path / "tls.crt") if trusted else "",
    )

    async def scenario() -> None:
        async with engine(tls=tls) as one:
            address = one.address.replace("127.0.0.1", "localhost")
            async with stage(address, parameters=parameters, pace=PATIENT) as s:
                if reason is None:
                    assert (await patiently(s.reports)).address == address
                else:
                    await s.until(lambda: (address, reason) in s.errors())

    asyncio.run(scenario())


def test_certificates_that_cannot_be_read_are_refused_at_start() -> None:
    async def scenario() -> None:
        parameters = ScrapeParameters(scheme="https", ca_cert_path="/nowhere/ca.crt")
        pool = Pool()
        with pytest.raises(ConfigError, match="certificates for reading metrics"):
            await Scraper(pool, Ledger(pool), parameters, FAST).start()

    asyncio.run(scenario())


SGLANG = "sglang:num_queue_reqs 4\nsglang:num_running_reqs 5\nsglang:token_usage 0.5\nsglang:page_size 8\n"


async def sglang(_: int) -> web.StreamResponse:
    return web.Response(text=SGLANG)


def test_every_endpoint_is_read_as_the_engine_that_its_label_names_and_may_change_it() -> None:
    async def scenario() -> None:
        async with engine(sglang) as one, engine() as two, stage() as s:
            s.pool.replace([Endpoint(one.address, labels={"llm-d.ai/engine-type": "sglang"}), Endpoint(two.address)])
            await s.until(lambda: s.candidate(one.address).fresh and s.candidate(two.address).fresh)
            first = s.candidate(one.address)
            assert (first.waiting, first.running, first.kv_usage, first.block_tokens) == (4, 5, 0.5, 8)
            s.pool.replace([Endpoint(one.address), Endpoint(two.address)])
            await s.until(lambda: (one.address, "page") in s.errors())
            s.pool.replace([Endpoint(one.address, labels={"inference.networking.k8s.io/engine-type": "sglang"})])
            await s.until(lambda: s.candidate(one.address).fresh)

    asyncio.run(scenario())


def test_a_label_that_names_no_known_engine_is_one_warning_and_the_default_engine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with engine() as one, engine() as two, stage(pace=PATIENT, clock=Clock()) as s:
            labels = {"llm-d.ai/engine-type": "vlllm"}
            s.pool.replace([Endpoint(one.address, labels=labels), Endpoint(two.address, labels=labels)])
            await s.until(lambda: min(one.reads, two.reads) > 3)
            assert s.candidate(one.address).fresh
            assert s.candidate(two.address).fresh

    asyncio.run(scenario())
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "names the engine 'vlllm', which is not known, so it is read as vllm" in warnings[0]


def test_a_metric_that_a_page_lacks_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def half(_: int) -> web.StreamResponse:
        return web.Response(text="vllm:num_requests_waiting 1\n")

    async def scenario() -> None:
        async with engine(half) as one, stage(one.address, pace=PATIENT, clock=Clock()) as s:
            await s.until(lambda: one.reads > 5)
            assert s.candidate(one.address).fresh

    asyncio.run(scenario())
    assert [r.getMessage().partition(": ")[2] for r in caplog.records if r.levelno == logging.WARNING] == [
        "read as vllm, its page lacks vllm:num_requests_running, vllm:kv_cache_usage_perc"
    ]


def test_a_number_that_no_engine_has_is_one_warning_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async def absurd(reads: int) -> web.StreamResponse:
        text = "vllm:kv_cache_usage_perc 0\nvllm:num_requests_waiting 1\n"
        return web.Response(text=f"{text}vllm:num_requests_running {reads}e30\n")

    async def scenario() -> None:
        async with engine(absurd) as one, stage(one.address) as s:
            await s.until(lambda: one.reads > 5)
            assert s.candidate(one.address).fresh
            assert s.candidate(one.address).running == 0
            assert s.scraper.states()[one.address].errors["doubted"] > 3

    asyncio.run(scenario())
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "its page says vllm:num_requests_running 1e+30: taken as not said" in warning


def test_a_number_that_is_absurd_now_and_then_is_ever_rarer_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    target = Target(Slot(0), "10.0.0.1:8000", 0.0, 1.0)
    for _ in range(100):
        target.count_doubted(("vllm:num_requests_running 1e+30",))
        target.count_doubted(())
    assert target.errors["doubted"] == 100
    assert len(caplog.records) == 7, "the 1st, 2nd, 4th ... 64th time"


def test_picks_are_not_given_back_when_the_engine_does_not_say_how_many_run() -> None:
    async def waiting_only(_: int) -> web.StreamResponse:
        return web.Response(text="vllm:num_requests_waiting 0\n")

    async def scenario() -> None:
        began = time.monotonic()
        hundredfold = lambda: began + 100 * (time.monotonic() - began)  # noqa: E731
        async with engine(waiting_only) as one, stage(one.address, clock=hundredfold) as s:
            await s.until(lambda: s.candidate(one.address).fresh)
            s.ledger.open(s.candidate(one.address), 10, hundredfold())
            reads = one.reads
            await s.until(lambda: one.reads > reads + 30)
            assert s.ended == []
            assert s.candidate(one.address).running == 1

    asyncio.run(scenario())
