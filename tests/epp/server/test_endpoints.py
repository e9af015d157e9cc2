"""Whether the configuration's parsers speak the protocol of the InferencePool."""

from __future__ import annotations

import pytest

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.discovery.cluster import PodDiscovery
from epp.discovery.inference_pool import InferencePool
from epp.discovery.options import PodOptions, PoolOptions
from epp.discovery.pool_discovery import PoolDiscovery
from epp.discovery.pool_keeper import PoolKeeper
from epp.kube.client import Client
from epp.kube.groups import GROUP
from epp.parsers.base import H2C, HTTP
from epp.pool.pool import Pool
from epp.server.endpoints import unspoken
from epp.server.health import Health
from epp.server.readiness import readiness
from tests.epp.kube.access import TokenAccess

GRPC_ALONE = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: vllmgrpc-parser}]
requestHandler: {parsers: [{pluginRef: vllmgrpc-parser}]}
"""
BOTH = GRPC_ALONE.replace("{type: vllmgrpc-parser}", "{type: vllmgrpc-parser}, {type: openai-parser}").replace(
    "{pluginRef: vllmgrpc-parser}", "{pluginRef: vllmgrpc-parser}, {pluginRef: openai-parser}"
)


@pytest.mark.parametrize(("config", "protocol", "fits"), [
    (None, None, True), (None, HTTP, True), (None, H2C, True),
    (GRPC_ALONE, None, True), (GRPC_ALONE, HTTP, False), (GRPC_ALONE, H2C, True),
    (BOTH, HTTP, True), (BOTH, H2C, True),
])  # fmt: skip
def test_a_pool_fits_if_a_parser_speaks_its_protocol(config: str | None, protocol: str | None, fits: bool) -> None:
    plan = build(load_text(config) if config else None)
    client = Client(TokenAccess("http://127.0.0.1:9"))
    pods = PodDiscovery(client, PoolKeeper(Pool()), namespace="default", selected=None)
    discovery = PoolDiscovery(client, pods, PoolOptions(name="mine", groups=(GROUP,)), namespace="default")
    assert unspoken(discovery, plan.protocols) == ""
    discovery.current = InferencePool(PodOptions(selector="a=b", ports=(8000,)), protocol)
    why = unspoken(discovery, plan.protocols)
    assert (why == "") is fits
    health = Health(lambda: not why)
    assert readiness(health, None, Pool(), scraped=False, unfit=why).ready is fits
    if not fits:
        assert why == "the pool's appProtocol is http, and the configuration's parsers speak kubernetes.io/h2c only"
