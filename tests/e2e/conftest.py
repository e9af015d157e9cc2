from __future__ import annotations

from collections.abc import Iterator

import pytest

from epp.server.settings import Transport
from tests.e2e.site.background import Background, background
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import Router, router


@pytest.fixture(scope="module")
def loop() -> Iterator[Background]:
    with background() as running:
        yield running


@pytest.fixture(scope="module")
def two(loop: Background) -> Iterator[list[Engine]]:
    """Two engines for a module; ``engines`` resets them for each test."""
    made = [Engine(), Engine()]
    for engine in made:
        loop.run(engine.start())
    yield made
    for engine in made:
        loop.run(engine.stop())


@pytest.fixture
def engines(loop: Background, two: list[Engine]) -> Iterator[list[Engine]]:
    yield two
    for engine in two:
        loop.call(engine.reset)


@pytest.fixture(scope="module", params=list(Transport), ids=lambda transport: transport.value)
def shared(request: pytest.FixtureRequest, loop: Background, two: list[Engine]) -> Iterator[Router]:
    """Run a router for a module, on each transport."""
    with router(loop, two, transport=request.param) as running:
        yield running


@pytest.fixture
def routed(shared: Router, engines: list[Engine]) -> Iterator[Router]:
    """Return the shared router, and check after the test that no request is in flight."""
    yield shared
    for engine in engines:
        shared.loop.call(engine.gate.set)
    shared.settle()
