"""The report about endpoints whose engines report their tiers."""

from __future__ import annotations

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.decision import RequestHead
from epp.explain import table
from epp.explain.endpoints import EndpointState, pool_state
from epp.pool.pool import Endpoint, EngineMetrics
from epp.server.core import Core
from epp.server.settings import Settings
from scorers.base import Slot
from tests.epp.explain.test_table import printed

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: precise-prefix-cache-producer
    name: precise
    parameters: {kvEventsConfig: {podDiscoveryConfig: {socketPortOffset: 1500}}}
  - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise}}
"""
ALL_TIERS = 7


class Reported:
    """A picker without sockets, one endpoint, and the metrics that its engine reports."""

    def __init__(self) -> None:
        self.core = Core(build(load_text(CONFIG)), Settings())
        self.core.pool.replace([Endpoint("127.0.0.1:8630")])
        self.core.pool.observe(Slot(0), EngineMetrics(gpu_blocks=1000, block_tokens=16), 1.0)
        body = b'{"model": "m", "prompt": "%s"}' % (b"sphinx of black quartz " * 100)
        self.core.director.decide(RequestHead({":path": "/v1/completions"}), body)

    def fares(self, why: str, known: int) -> None:
        assert self.core.precise is not None
        self.core.precise.update_status(0, why, known, (14_816, 28_336, 0))

    @property
    def shown(self) -> EndpointState:
        core = self.core
        return pool_state(core.pool, core.ledger, core.plan, None).endpoints[0]

    @property
    def page(self) -> str:
        core = self.core
        return " ".join(printed(table.of_pool(pool_state(core.pool, core.ledger, core.plan, None)), 400).split())


def test_what_is_shown_as_precise_is_what_the_engine_tells_and_the_rest_is_the_index_s_guess() -> None:
    reported = Reported()
    reported.fares("joined late", 0b010)
    gpu, cpu = (reported.shown.index[f"precise/{tier} ({tier})"] for tier in ("gpu", "cpu"))
    assert (gpu.mode, gpu.used_tokens) == ("approximate", 512)
    assert (cpu.mode, cpu.used_tokens) == ("precise", 28_336)
    reported.fares("", ALL_TIERS)
    assert reported.shown.index["precise/gpu (gpu)"].used_tokens == 14_816
    assert "14,816 of 16,000 (precise)" in reported.page


def test_what_is_amiss_with_an_endpoint_s_kv_events_stands_below_the_table_with_where_they_are_looked_for() -> None:
    reported = Reported()
    for why in ("not connected", "gap"):
        reported.fares(why, 0)
        assert reported.page.endswith(f"127.0.0.1:8630: KV events from tcp://127.0.0.1:10130: {why}.")
    reported.fares("", ALL_TIERS)
    assert "KV events" not in reported.page
