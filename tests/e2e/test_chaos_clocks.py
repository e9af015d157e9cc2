"""Clocks that jump: the picker uses a monotonic clock, which may stop or leap by hours on a suspended machine.

The wall clock, which people set, has no effect on it.
"""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from epp.config.wiring.build import plan_from
from epp.decision import Cause
from epp.ports.claim import claim
from epp.server.app import App
from epp.standalone.binary import find_envoy
from epp.standalone.command import ENDPOINTS_NAMED
from epp.standalone.endpoints import write_endpoints
from epp.standalone.proxy import Proxy
from epp.standalone.settings import ProxySettings
from tests.e2e.site.chaos import LOOPBACK, ROOT
from tests.e2e.site.fragile import FragileEngine, Mood
from tests.e2e.site.options import options_of
from tests.e2e.site.storm import Fate, Storm, until

pytestmark = pytest.mark.e2e
HOUR_S = 3600.0
SHOWN_TO_PEOPLE = {
    "epp/ports/certificates.py",  # until when one is valid
    "epp/explain/effective.py",
    "epp/doctor/pages_read.py",  # an operator's command compares it with the clocks of pickers and the API server
    "epp/doctor/reading.py",
    "epp/pool/index_keeper.py",  # how long ago another process wrote its index
    "epp/server/readiness.py",  # since when a process runs, and its clock, for that command
    "epp/server/reload.py",  # since when a configuration is in use
    "epp/kube/kubeconfig/files.py",  # until when a plugin's credential is valid
    "epp/kube/election/elector.py",  # when a Lease was renewed: written, and never compared
    "epp/resources/status_writer.py",  # when a condition changed, in a status
    "epp/lab/engine",  # an engine's own: "created", in an answer; its clock on its metrics page, and its events'
    "epp/ports/tls.py",
    "epp/tokens/model/template.py",  # today's date, in a prompt
    "epp/tracing",  # spans have dates
    "epp/metrics/exposition.py",
}
"""The files that may read the wall clock: its value is shown, or compared with another process's wall clock."""


class SuspectClock:
    """A clock as monotonic as the system's, until a test stops it or makes it leap."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._stopped: float | None = None

    def __call__(self) -> float:
        return self._stopped if self._stopped is not None else time.monotonic() + self._ahead_s

    def stop(self) -> None:
        self._stopped = self()

    def go_on(self) -> None:
        self._stopped = None

    def leap(self, seconds: float) -> None:
        self._ahead_s += seconds


@asynccontextmanager
async def timed_by(clock: SuspectClock, folder: Path) -> AsyncIterator[tuple[App, list[FragileEngine], Storm]]:
    """Run a picker in this process that is timed by ``clock``, behind a real Envoy."""
    engines = [FragileEngine(), FragileEngine()]
    for engine in engines:
        await engine.start()
    options = options_of([engine.address for engine in engines], host=LOOPBACK, metrics_port=0)
    app = App(plan_from(None, None, picks=ENDPOINTS_NAMED), options.picker, clock=clock)
    await app.start()
    proxy = Proxy(
        find_envoy(None),
        ProxySettings(
            host=LOOPBACK, port=claim(LOOPBACK, 0, "--port"), admin_port=claim(LOOPBACK, 0, "--admin-port"),
            picker_port=app.grpc_port, endpoints_file=folder / "endpoints.json",
        ),
        folder,
    )  # fmt: skip
    write_endpoints(proxy.settings.endpoints_file, options.picker.endpoints)
    await proxy.start()
    try:
        yield app, engines, Storm(proxy.settings.port)
    finally:
        await proxy.stop(0.0)
        await app.stop(0.0)
        for engine in engines:
            engine.die()


def test_a_clock_that_leaps_by_hours_releases_leases_once_and_loses_no_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SuspectClock()
        tasks_before = len(asyncio.all_tasks())
        async with timed_by(clock, tmp_path) as (app, engines, storm):
            for engine in engines:
                engine.mood = Mood.HELD
            with storm.raging(10):
                await until(lambda: len(app.ledger) == 10, "ten are in flight")
                clock.leap(2 * HOUR_S)
                await until(lambda: app.ledger.released[Cause.LEASE_EXPIRED] == 10, "their leases are over")
                assert all(candidate.in_flight == 0 for candidate in app.pool.candidates())
                for engine in engines:
                    engine.recover()
                await storm.more(50)
            await storm.ended()
            assert storm.fates().keys() == {Fate.ANSWERED}
            await until(lambda: len(app.ledger) == 0, "the ledger is empty")
            assert all(candidate.in_flight == 0 for candidate in app.pool.candidates())
            await until(lambda: all(c.fresh for c in app.pool.candidates()), "the endpoints are believed again")
        await until(lambda: len(asyncio.all_tasks()) == tasks_before, "no task is left")

    asyncio.run(scenario())


def test_a_clock_that_stands_still_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SuspectClock()
        async with timed_by(clock, tmp_path) as (app, _, storm):
            with storm.raging(6):
                await storm.more(20)
                clock.stop()
                await storm.more(100)
                clock.go_on()
                await storm.more(20)
                clock.stop()
                clock.leap(5 * HOUR_S)
                await storm.more(20)
                clock.go_on()
                await storm.more(20)
            await storm.ended()
            assert storm.fates().keys() == {Fate.ANSWERED}
            await until(lambda: len(app.ledger) == 0, "the ledger is empty")

    asyncio.run(scenario())


def test_the_wall_clock_decides_nothing() -> None:
    readers = set()
    for path in [*(ROOT / "epp").rglob("*.py"), *(ROOT / "scorers").rglob("*.py")]:
        names = {ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        if names & {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"}:
            readers.add(str(path.relative_to(ROOT)))
    assert [path for path in sorted(readers) if not path.startswith(tuple(SHOWN_TO_PEOPLE))] == []
