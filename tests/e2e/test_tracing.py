"""Trace context through a real Envoy: from the client to the picker, and from the picker to the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from epp.server.settings import Transport
from epp.tracing.context import TraceContext, parent_of
from epp.tracing.sampler import Sampler
from epp.tracing.settings import Exporter, TraceSettings
from tests.e2e.site.background import Background
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import Router, behind_gateway, router
from tests.epp.tracing.collector import Collector, collector

pytestmark = pytest.mark.e2e

CLIENT = TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, sampled=True)


@pytest.fixture
def there() -> Iterator[Collector]:
    with collector() as made:
        yield made


def settings(there: Collector, ratio: float = 0.0) -> TraceSettings:
    return TraceSettings(Exporter.OTLP, f"http://{there.address}", Sampler(ratio), "tierwise")


def ask(routed: Router, **headers: str) -> None:
    routed.complete("hello", extra_headers=headers)
    routed.settle()


@pytest.mark.parametrize("transport", list(Transport), ids=lambda transport: transport.value)
def test_the_picker_stands_between_the_client_and_the_engine(
    loop: Background, engines: list[Engine], there: Collector, transport: Transport
) -> None:
    with router(loop, engines, transport=transport, tracing=settings(there)) as routed:
        ask(routed, traceparent=CLIENT.header, tracestate="vendor=1")
        (root,) = there.named("gateway.request")
        there.named("pick_endpoints")
    (request,) = [request for engine in engines for request in engine.requests]
    told = parent_of(request.headers["traceparent"])
    assert told is not None
    assert told.sampled
    assert request.headers.getall("traceparent") == [told.header]
    assert request.headers["tracestate"] == "vendor=1"
    assert told.trace_id == CLIENT.trace_id == int(root.trace_id.hex(), 16)
    assert told.span_id == int(root.span_id.hex(), 16)
    assert root.parent_span_id.hex() == f"{CLIENT.span_id:016x}"
    status = {a.key: a.value.int_value for a in root.attributes}
    assert status["http.response.status_code"] == 200


def test_behind_a_gateway_with_full_duplex_bodies_as_well(
    loop: Background, engines: list[Engine], there: Collector, tmp_path: Path
) -> None:
    with behind_gateway(loop, engines, tmp_path, tracing=settings(there, ratio=1.0)) as routed:
        ask(routed)
        (root,) = there.named("gateway.request")
    (request,) = [request for engine in engines for request in engine.requests]
    told = parent_of(request.headers["traceparent"])
    assert told is not None
    assert (told.trace_id, told.span_id) == (int(root.trace_id.hex(), 16), int(root.span_id.hex(), 16))
    assert not root.parent_span_id


def test_what_is_not_sampled_is_told_to_the_engine_and_not_to_the_collector(
    loop: Background, engines: list[Engine], there: Collector
) -> None:
    with router(loop, engines, tracing=settings(there)) as routed:
        ask(routed)
        ask(routed, traceparent=CLIENT._replace(sampled=False).header)
        ask(routed, traceparent=CLIENT.header)
        assert len(there.named("gateway.request")) == 1
    told = [request.headers["traceparent"] for engine in engines for request in engine.requests]
    contexts = [parent_of(value) for value in told]
    assert sorted(context.sampled for context in contexts if context is not None) == [False, False, True]
    assert CLIENT._replace(sampled=False).header in told
