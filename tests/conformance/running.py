"""Our server on an event loop of its own thread, as long as a ``with`` block lasts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from epp.wire.http2.limits import Limits
from epp.wire.server import WireServer
from tests.conformance.client import Address
from tests.conformance.echo import Endings, methods

PATIENCE_S = 5.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Running:
    """A started server. Any thread may ask it to run a coroutine on its loop."""

    server: WireServer
    address: Address
    loop: asyncio.AbstractEventLoop

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run ``coroutine`` on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)


@contextmanager
def serving(endings: Endings, limits: Limits) -> Iterator[Running]:
    """The echo service on a free port of the loopback."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="conformance server")
    thread.start()
    server = WireServer(methods(endings), limits=limits)
    try:
        port = asyncio.run_coroutine_threadsafe(server.start("127.0.0.1", 0), loop).result(PATIENCE_S)
        yield Running(server, ("127.0.0.1", port), loop)
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()
