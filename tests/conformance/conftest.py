"""The server under test: ours, on an event loop of its own thread, or any at ``--conformance-address host:port``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from epp.wire.limits import Limits
from epp.wire.server import WireServer
from tests.conformance.client import Address, Client
from tests.conformance.echo import Endings, methods
from tests.conformance.frames import DEFAULT_WINDOW_BYTES

LIMITS = {
    "default limits": Limits(),
    "tight limits": Limits(
        max_concurrent_streams=100,
        stream_window_bytes=DEFAULT_WINDOW_BYTES,
        connection_window_bytes=DEFAULT_WINDOW_BYTES,
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--conformance-address", help="host:port of another HTTP/2 server to try the HTTP/2 cases on")


@pytest.fixture(scope="session")
def endings() -> Endings:
    return Endings()


@contextmanager
def serving(endings: Endings, limits: Limits) -> Iterator[Address]:
    """Our server on a free port, until the context ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="conformance server")
    thread.start()
    server = WireServer(methods(endings), limits=limits)
    try:
        port = asyncio.run_coroutine_threadsafe(server.start("127.0.0.1", 0), loop).result(5)
        yield "127.0.0.1", port
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(5)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@pytest.fixture(scope="session", params=LIMITS)
def address(request: pytest.FixtureRequest, endings: Endings) -> Iterator[Address]:
    other = request.config.getoption("--conformance-address", default=None)
    if other:
        host, port = str(other).rsplit(":", 1)
        yield host, int(port)
        return
    with serving(endings, LIMITS[request.param]) as ours:
        yield ours


@pytest.fixture
def client(address: Address) -> Iterator[Client]:
    """A connection to the server under test, past the handshake."""
    with Client(address) as client:
        client.handshake()
        yield client
