"""The metrics port, as an HTTP client sees it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from epp.kube.readers import Verdict
from epp.metrics.exposition import Exposition
from epp.metrics.telemetry import Telemetry
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, Pool
from epp.server.admin import Admin
from epp.server.readiness import Readiness


@dataclass
class Stage:
    http: aiohttp.ClientSession
    pool: Pool
    ledger: Ledger
    ready: list[bool]


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    pool = Pool()
    pool.replace([Endpoint("10.0.0.1:8000", "default/a", {"role": "decode"})])
    ledger, ready = Ledger(pool), [True]
    admin = Admin(Exposition(Telemetry(), pool, ledger), lambda: Readiness(ready[0], "as told"))
    port = await admin.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
            yield Stage(http, pool, ledger, ready)
    finally:
        await admin.stop()


def test_metrics_are_text_that_a_scraper_parses_compressed_or_not() -> None:
    async def scenario() -> None:
        async with stage() as s:
            for encoding in ("identity", "gzip"):
                async with s.http.get("/metrics", headers={"Accept-Encoding": encoding}) as response:
                    assert response.headers["Content-Type"].startswith("text/plain; version=")
                    assert response.headers.get("Content-Encoding", "identity") == encoding
                    names = {family.name for family in text_string_to_metric_families(await response.text())}
                assert {"llm_d_epp_ready_endpoints", "process_cpu_seconds", "python_gc_collections"} <= names

    asyncio.run(scenario())


def test_openmetrics_is_spoken_to_those_who_ask_for_it() -> None:
    async def scenario() -> None:
        async with stage() as s:
            headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
            async with s.http.get("/metrics", headers=headers) as response:
                assert response.headers["Content-Type"].startswith("application/openmetrics-text")
                assert (await response.text()).endswith("# EOF\n")

    asyncio.run(scenario())


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
def test_readiness_follows_what_it_is_told_and_health_is_being_there(ready: bool, status: int) -> None:
    async def scenario() -> None:
        async with stage() as s:
            s.ready[0] = ready
            async with s.http.get("/readyz") as response:
                assert (response.status, await response.text()) == (status, "as told\n")
            async with s.http.get("/healthz") as response:
                assert response.status == 200

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/debug/endpoints", "/debug/config", "/debug/explain", "/debug/plugins/state", "/"])
def test_internals_are_not_on_this_port(path: str) -> None:
    async def scenario() -> None:
        async with stage() as s, s.http.get(path) as response:
            assert response.status == 404

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_an_oserror_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        pool = Pool()
        ledger = Ledger(pool)
        admin = Admin(Exposition(Telemetry(), pool, ledger), lambda: Readiness(True, "ready"))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(OSError, match="address already in use"):
                await admin.start("127.0.0.1", taken.getsockname()[1])
        await admin.stop()

    asyncio.run(scenario())


def test_a_guard_decides_who_reads_the_metrics_and_probes_are_open() -> None:
    async def guard(method: str, path: str, authorization: str | None) -> Verdict:
        assert (method, path) == ("GET", "/metrics")
        return Verdict(200, "") if authorization == "Bearer good" else Verdict(401, "no")

    async def scenario() -> None:
        pool = Pool()
        ledger = Ledger(pool)
        admin = Admin(Exposition(Telemetry(), pool, ledger), lambda: Readiness(True, "ready"), guard=guard)
        port = await admin.start("127.0.0.1", 0)
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
                for path in ("/healthz", "/readyz"):
                    async with http.get(path) as response:
                        assert response.status == 200
                async with http.get("/metrics") as response:
                    assert (response.status, await response.text()) == (401, "no\n")
                    assert response.headers["WWW-Authenticate"] == "Bearer"
                async with http.get("/metrics", headers={"Authorization": "Bearer good"}) as response:
                    assert response.status == 200
                    assert "process_cpu_seconds" in await response.text()
        finally:
            await admin.stop()

    asyncio.run(scenario())
