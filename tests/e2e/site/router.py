"""Runs ``tierwise standalone`` as a user does, in the test's process: client, Envoy, picker and engines are real."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Protocol

import openai

from epp.extproc.options import ErrorFormat
from epp.ports.claim import claim
from epp.runtime.signals import Stop
from epp.server.app import App
from epp.standalone.binary import find_envoy
from epp.standalone.endpoints import write_endpoints
from epp.standalone.proxy import Proxy
from epp.standalone.run import standalone
from epp.standalone.settings import ProxySettings, RequestMode, ResponseMode
from tests.e2e.site.background import PATIENCE_S, Background
from tests.e2e.site.gateway import gateway
from tests.e2e.site.options import options_of
from tests.e2e.site.picker import starts

LOOPBACK = "127.0.0.1"


class Addressed(Protocol):
    """The part of an engine that a router needs."""

    @property
    def address(self) -> str: ...


@dataclass
class Router:
    loop: Background
    port: int
    client: openai.OpenAI
    picker: App

    def complete(self, prompt: str, **more: Any) -> str:
        """Return the text of a completion, which is the address of the engine that answered."""
        return self.client.completions.create(model="m", prompt=prompt, **more).choices[0].text

    def settle(self) -> None:
        """Return once the picker counts no request in flight."""
        self.loop.until(lambda: len(self.picker.ledger) == 0, "the ledger is empty")

    def ask(self, path: str, content: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Send a request that no library would send, a POST if it has content; return status and text."""
        with closing(HTTPConnection(LOOPBACK, self.port, timeout=15)) as connection:
            connection.request("GET" if content is None else "POST", f"/v1{path}", content, headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode()


@contextmanager
def router(loop: Background, engines: Sequence[Addressed], **options: Any) -> Iterator[Router]:
    """Run a router before ``engines``; ``options`` are flags of the command."""
    port = claim(LOOPBACK, 0, "--port")
    chosen = options_of(
        [engine.address for engine in engines],
        **({"host": LOOPBACK, "port": port, "admin_port": 0, "metrics_port": 0, "drain_timeout": 5.0} | options),
    )
    made: list[App] = []
    stop = loop.call(Stop)
    running = asyncio.run_coroutine_threadsafe(standalone(chosen, starts(made), stop), loop.loop)
    try:
        loop.until(lambda: running.done() or accepts(port), "Envoy accepts connections")
        if running.done():
            running.result()
        with openai.OpenAI(
            base_url=f"http://{LOOPBACK}:{port}/v1", api_key="none", max_retries=0, timeout=15
        ) as client:
            yield Router(loop, port, client, made[0])
    finally:
        loop.call(stop.set)
        running.result(PATIENCE_S)


@contextmanager
def behind_gateway(
    loop: Background,
    engines: Sequence[Addressed],
    folder: Path,
    response_mode: ResponseMode = ResponseMode.FULL,
    *,
    request_mode: RequestMode = RequestMode.DUPLEX,
    picker_timeout_s: float = 10.0,
    **more: Any,
) -> Iterator[Router]:
    """Run a picker as a gateway uses it: full duplex by default, with subset hints and no access log."""
    port = claim(LOOPBACK, 0, "--port")
    made: list[App] = []
    options = options_of(
        [engine.address for engine in engines],
        response_mode=ResponseMode.FULL,
        metrics_port=0,
        **({"error_format": ErrorFormat.TEXT} | more),
    )
    picker = loop.run(starts(made)(options))
    settings = ProxySettings(
        host=LOOPBACK,
        port=port,
        admin_port=claim(LOOPBACK, 0, "--admin-port"),
        picker_port=picker.grpc_port,
        endpoints_file=folder / "endpoints.json",
        request_mode=request_mode,
        picker_timeout_s=picker_timeout_s,
        response_mode=response_mode,
        error_format=options.proxy.error_format,
    )
    write_endpoints(settings.endpoints_file, options.picker.endpoints)
    proxy = Proxy(find_envoy(None), settings, folder, configure=gateway)
    loop.run(proxy.start())
    try:
        with openai.OpenAI(
            base_url=f"http://{LOOPBACK}:{port}/v1", api_key="none", max_retries=0, timeout=15
        ) as client:
            yield Router(loop, port, client, picker)
    finally:
        loop.run(proxy.stop(0.0))
        loop.run(picker.stop(0.0))


def refuse_three_and_answer_one(port: int) -> None:
    """Send four requests on one connection, which must stay open."""
    with closing(HTTPConnection(LOOPBACK, port, timeout=PATIENCE_S)) as connection:
        connection.connect()
        socket = connection.sock
        for content, status in (
            (b'{"prompt": "x"}', 400),
            (b"{", 400),
            (b"[]", 400),
            (b'{"model":"m","prompt":"x"}', 200),
        ):
            connection.request("POST", "/v1/completions", content)
            response = connection.getresponse()
            response.read()
            assert (response.status, response.getheader("connection")) == (status, None)
            assert connection.sock is socket


def accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((LOOPBACK, port)) == 0
