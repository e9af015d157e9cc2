"""With ``--emit-endpoint-scores`` a real Envoy has every total in its dynamic metadata, in both body modes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from envoy_data_plane.envoy.config.accesslog.v3 import AccessLog
from envoy_data_plane.envoy.config.bootstrap.v3 import Bootstrap
from envoy_data_plane.envoy.config.core.v3 import DataSource, SubstitutionFormatString
from envoy_data_plane.envoy.extensions.access_loggers.file.v3 import FileAccessLog
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpConnectionManager
from envoy_data_plane.google.protobuf import Any

from epp.ports.claim import claim
from epp.server.app import App
from epp.standalone.binary import find_envoy
from epp.standalone.bootstrap import bootstrap
from epp.standalone.endpoints import write_endpoints
from epp.standalone.proxy import Proxy
from epp.standalone.settings import ProxySettings, RequestMode, ResponseMode
from tests.e2e.site.background import Background
from tests.e2e.site.engine import Engine
from tests.e2e.site.options import options_of
from tests.e2e.site.picker import starts
from tests.e2e.site.router import LOOPBACK

pytestmark = pytest.mark.e2e

SCORES = "%DYNAMIC_METADATA(envoy.lb:x-gateway-destination-endpoint-scores)%\n"


@pytest.fixture
def picker(loop: Background, engines: list[Engine]) -> Iterator[App]:
    made: list[App] = []
    options = options_of(
        [engine.address for engine in engines],
        response_mode=ResponseMode.FULL,
        metrics_port=0,
        emit_endpoint_scores=True,
    )
    loop.run(starts(made)(options))
    yield made[0]
    loop.run(made[0].stop(0.0))


@pytest.mark.parametrize("mode", [RequestMode.BUFFERED, RequestMode.DUPLEX], ids=lambda mode: mode.name)
def test_every_total_is_in_the_proxys_metadata(
    loop: Background, engines: list[Engine], picker: App, tmp_path: Path, mode: RequestMode
) -> None:
    written = tmp_path / "scores"

    def logging_scores(settings: ProxySettings) -> Bootstrap:
        made = bootstrap(settings)
        assert made.static_resources is not None
        network_filter = made.static_resources.listeners[0].filter_chains[0].filters[0]
        assert network_filter.typed_config is not None
        manager = network_filter.typed_config.unpack()
        assert isinstance(manager, HttpConnectionManager)
        form = SubstitutionFormatString(text_format_source=DataSource(inline_string=SCORES))
        file = FileAccessLog(path=str(written), log_format=form)
        manager.access_log.append(AccessLog(name="envoy.access_loggers.file", typed_config=Any.pack(file)))
        network_filter.typed_config = Any.pack(manager)
        return made

    settings = ProxySettings(
        host=LOOPBACK,
        port=claim(LOOPBACK, 0, "--port"),
        admin_port=claim(LOOPBACK, 0, "--admin-port"),
        picker_port=picker.grpc_port,
        endpoints_file=tmp_path / "endpoints.json",
        request_mode=mode,
        response_mode=ResponseMode.FULL,
    )
    addresses = [engine.address for engine in engines]
    write_endpoints(settings.endpoints_file, addresses)
    proxy = Proxy(find_envoy(None), settings, tmp_path, configure=logging_scores)
    loop.run(proxy.start())
    try:
        base = f"http://{LOOPBACK}:{settings.port}/v1"
        with openai.OpenAI(base_url=base, api_key="none", max_retries=0, timeout=15) as client:
            served = client.completions.create(model="m", prompt="x" * 400).choices[0].text
        loop.until(lambda: written.exists() and written.read_text().endswith("\n"), "Envoy has written its log")
        scores = json.loads(written.read_text().splitlines()[0])
        assert sorted(scores) == sorted(addresses)
        assert scores[served] == max(scores.values())
    finally:
        loop.run(proxy.stop(0.0))
