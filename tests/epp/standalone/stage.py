"""A real Envoy between a client, two engines and a picker whose answers the test fixes."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envoy_data_plane.envoy.config.bootstrap.v3 import Bootstrap

from epp.ports.claim import claim
from epp.standalone.binary import find_envoy
from epp.standalone.bootstrap import bootstrap
from epp.standalone.endpoints import write_endpoints
from epp.standalone.proxy import Proxy
from epp.standalone.settings import ProxySettings
from tests.e2e.site.background import Background
from tests.e2e.site.engine import Engine
from tests.epp.standalone.fixed_picker import FixedPicker


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def served_by(self) -> str:
        """The address of the engine that answered, which is in its answer."""
        return str(json.loads(self.body)["choices"][0]["text"])


@dataclass
class Stage:
    loop: Background
    engines: list[Engine]
    picker: FixedPicker
    proxy: Proxy

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.proxy.settings.port, timeout=15)

    def ask(
        self, headers: dict[str, str] | None = None, *, method: str = "POST", path: str = "/v1/completions", **body: Any
    ) -> Answer:
        connection = self.connect()
        text = json.dumps({"model": "m", "prompt": "x"} | body) if method == "POST" else None
        connection.request(method, path, text, headers or {})
        response = connection.getresponse()
        answer = Answer(response.status, response.read(), {k.lower(): v for k, v in response.headers.items()})
        connection.close()
        return answer

    def list_endpoints(self, engines: list[Engine]) -> None:
        self.list_addresses([engine.address for engine in engines])

    def list_addresses(self, addresses: list[str]) -> None:
        write_endpoints(self.proxy.settings.endpoints_file, addresses)

    def until_status(self, status: int) -> Answer:
        """Return the first answer with ``status``, since a change of the endpoints takes effect after a moment."""
        deadline = time.monotonic() + 15
        while (answer := self.ask()).status != status:
            assert time.monotonic() < deadline
        return answer


@contextmanager
def stage(
    loop: Background, folder: Path, configure: Callable[[ProxySettings], Bootstrap] = bootstrap, **settings: Any
) -> Iterator[Stage]:
    """Start everything; ``settings`` are those of the proxy, and ``configure`` makes its configuration."""
    engines, picker = [Engine(), Engine()], FixedPicker()
    for engine in engines:
        loop.run(engine.start())
    loop.run(picker.start())
    chosen = ProxySettings(
        host="127.0.0.1",
        port=claim("127.0.0.1", 0, "--port"),
        admin_port=claim("127.0.0.1", 0, "--envoy-admin-port"),
        picker_port=picker.port,
        endpoints_file=folder / "endpoints.json",
        **({"sample_rate": 0.0} | settings),
    )
    proxy = Proxy(find_envoy(None), chosen, folder, configure=configure)
    here = Stage(loop, engines, picker, proxy)
    here.list_endpoints(engines)
    try:
        loop.run(proxy.start())
        yield here
    finally:
        loop.run(proxy.stop(0.0))
        loop.run(picker.stop())
        for engine in engines:
            loop.run(engine.stop())
