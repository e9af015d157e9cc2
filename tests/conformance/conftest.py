"""The server under test: ours, with two sets of limits, or any other at ``--conformance-address host:port``.

The suite was checked on nghttpd of nghttp2 1.52 (``nghttpd --no-tls``, with a file ``test.Echo/Unary``). It keeps every
HTTP/2 case but three: a new stream below the last one is ignored, an initial window that overflows an open stream costs
the stream and not the connection, and a Host that differs from the authority is accepted.

grpcio 1.85 keeps the gRPC cases, except: other content types are answered, authority and te are required, ``1 S`` and
nine digits are taken for timeouts, a message that ends halfway or has an unknown flag is ignored in silence, and an
unknown encoding is INTERNAL. Of the HTTP/2 cases it misses a third; it leaves validation to the proxies before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from epp.wire.http2.limits import Limits
from tests.conformance.client import Address, Client
from tests.conformance.echo import Endings
from tests.conformance.frames import DEFAULT_WINDOW_BYTES
from tests.conformance.running import serving

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


@pytest.fixture(scope="session", params=LIMITS)
def address(request: pytest.FixtureRequest, endings: Endings) -> Iterator[Address]:
    other = request.config.getoption("--conformance-address", default=None)
    if other:
        host, port = str(other).rsplit(":", 1)
        yield host, int(port)
        return
    with serving(endings, LIMITS[request.param]) as ours:
        yield ours.address


@pytest.fixture(autouse=True)
def _no_defects(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A server that meets an error of its own closes too, which most cases allow: its log tells the two apart."""
    yield
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]


@pytest.fixture
def client(address: Address) -> Iterator[Client]:
    """A connection to the server under test, past the handshake."""
    with Client(address) as client:
        client.handshake()
        yield client
