"""The whole picker on real sockets: health, retiring, and what stays open when a port cannot be bound."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.errors import ConfigError
from epp.extproc.options import ExchangeSettings
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.server.app import App
from epp.server.settings import Settings, SnapshotOptions

LOOPBACK = "127.0.0.1"
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def running() -> AsyncIterator[App]:
    app = App(build(), Settings(endpoints=("127.0.0.1:9",), health_port=0))
    await app.start()
    try:
        yield app
    finally:
        await app.stop(0.0)


async def health(channel: grpc.aio.Channel) -> int:
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )
    answer: HealthCheckResponse = await check(HealthCheckRequest(service="readiness"))
    return int(answer.status)


def test_health_is_the_same_on_both_ports_and_goes_first() -> None:
    async def scenario() -> None:
        async with (
            running() as app,
            grpc.aio.insecure_channel(f"{LOOPBACK}:{app.grpc_port}") as ext_proc,
            grpc.aio.insecure_channel(f"{LOOPBACK}:{app.health_port}") as beside,
        ):
            assert [await health(channel) for channel in (ext_proc, beside)] == [SERVING, SERVING]
            retiring = asyncio.create_task(app.retire(1.0))
            await asyncio.sleep(0)
            assert [await health(channel) for channel in (ext_proc, beside)] == [NOT_SERVING, NOT_SERVING]
            assert not retiring.done(), "somebody is connected, and may not have heard of it yet"
            await retiring

    asyncio.run(scenario())


def test_a_picker_that_nobody_uses_retires_at_once() -> None:
    async def scenario() -> None:
        async with running() as app, asyncio.timeout(2.0):
            await app.retire(60.0)

    asyncio.run(scenario())


@pytest.mark.parametrize(("setting", "flag"), [("grpc_port", "--grpc-port"), ("metrics_port", "--metrics-port")])
def test_a_port_that_cannot_be_had_is_one_sentence_and_leaves_nothing_open(setting: str, flag: str) -> None:
    async def scenario() -> None:
        tasks = asyncio.all_tasks()
        with socket.create_server((LOOPBACK, 0)) as taken:
            app = App(build(), Settings(endpoints=("127.0.0.1:9",), **{setting: taken.getsockname()[1]}))
            with pytest.raises(ConfigError, match=f"in use; stop what listens there or pass {flag}"):
                await app.start()
        assert asyncio.all_tasks() == tasks

    asyncio.run(scenario())


RULES = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
inferenceModelRewrites: [{rules: [{targets: [{modelRewrite: t}]}]}]
"""


@pytest.mark.parametrize("may_ask", [True, False])
def test_the_first_rewrite_rule_takes_a_restart_where_the_proxy_keeps_response_headers_to_itself(may_ask: bool) -> None:
    async def use() -> None:
        app = App(build(), Settings(exchange=ExchangeSettings(may_ask=may_ask)))
        app.core.use(build(load_text(RULES)))

    if may_ask:
        with pytest.raises(ConfigError, match=r"inferenceModelRewrites.* takes a restart"):
            asyncio.run(use())
    else:
        asyncio.run(use())


@pytest.mark.parametrize(("open_streams", "said"), [(0, "0 streams were cut"), (1, "1 stream was cut")])
def test_the_last_line_says_how_many_streams_were_cut(
    open_streams: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "epp")

    async def scenario() -> None:
        async with running() as app, grpc.aio.insecure_channel(f"{LOOPBACK}:{app.grpc_port}") as channel:
            method = channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")
            calls = [method() for _ in range(open_streams)]
            for call in calls:
                await call.write(ProcessingRequest(request_headers={}).SerializeToString())
            assert await health(channel) == SERVING, "what is older on the connection has arrived"
            await app.stop(0.05)
            for call in calls:
                call.cancel()

    asyncio.run(scenario())
    assert f"stopped; {said}" in [record.getMessage() for record in caplog.records]


def test_a_place_where_no_index_snapshot_can_be_is_refused_at_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "no" / "index"
        app = App(build(), Settings(endpoints=("127.0.0.1:9",), snapshot=SnapshotOptions(file=file)))
        with pytest.raises(ConfigError, match=f"--index-snapshot={file}: there is no folder {file.parent}; make it"):
            await app.start()

    asyncio.run(scenario())
