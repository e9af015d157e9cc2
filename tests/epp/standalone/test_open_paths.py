"""Clients reach only the engines' inference API, unless the operator opens further paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from epp.standalone.endpoints import write_endpoints
from epp.standalone.settings import ResponseMode
from tests.e2e.site.background import Background
from tests.epp.standalone.raw import raw, status_of
from tests.epp.standalone.stage import Stage, stage
from tests.epp.standalone.test_start import wait_until

pytestmark = pytest.mark.e2e


class Everything:
    """An engine that answers every path, and records it as its application would see it."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.address = ""

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.seen.append(request.path)
        return web.Response(text="{}")


@pytest.fixture(scope="module")
def engine(loop: Background) -> Iterator[Everything]:
    made = Everything()
    loop.run(made.start())
    yield made
    loop.run(made.stop())


@pytest.fixture(scope="module")
def shared(loop: Background, engine: Everything, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(loop, tmp_path_factory.mktemp("paths")) as started:
        lead_to(started, engine)
        yield started


@pytest.fixture
def router(shared: Stage, engine: Everything) -> Stage:
    engine.seen.clear()
    return shared


def lead_to(router: Stage, engine: Everything) -> None:
    write_endpoints(router.proxy.settings.endpoints_file, [engine.address])
    router.picker.destination = engine.address
    wait_until(lambda: asked(router, "/v1/until") == 200 and bool(engine.seen))


def asked(router: Stage, path: str, method: str = "GET") -> int:
    """Return the status of a request whose path no library has normalized."""
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    return status_of(raw(router.proxy.settings.port, head.encode()))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models", "/v1/models/Qwen/Qwen3-32B", "/v1/chat/completions", "/v1/completions/render", "/v1/embeddings",
        "/v1/responses/resp_1/cancel", "/v1/messages/count_tokens", "/v1/audio/transcriptions", "/v1/score",
        "/v2/rerank", "/v2/embed", "/inference/v1/generate", "/tokenize", "/detokenize", "/pooling", "/classify",
        "/rerank", "/invocations", "/generate", "/health", "/ping", "/version", "/v1/models?load_lora_adapter",
        "/vllm.grpc.engine.VllmEngine/Generate", "/google.cloud.aiplatform.v1.PredictionService/ChatCompletions",
    ],
)  # fmt: skip
def test_the_inference_api_is_open(router: Stage, engine: Everything, path: str) -> None:
    assert asked(router, path) == 200
    assert engine.seen == [path.partition("?")[0]]


CLOSED = [
    "/metrics", "/docs", "/redoc", "/openapi.json", "/load", "/server_info", "/get_server_info", "/sleep", "/wake_up",
    "/is_sleeping", "/collective_rpc", "/reset_prefix_cache", "/reset_mm_cache", "/flush_cache", "/pause", "/resume",
    "/scale_elastic_ep", "/update_weights", "/update_weights_from_disk", "/start_profile", "/stop_profile",
    "/abort_request", "/abort_requests", "/tokenizer_info", "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
    "/v1/loads", "/v2/repository/models/m/unload", "/vllm.grpc.engine.VllmEngine/SubscribeKvEvents", "/", "/v1", "/x",
]  # fmt: skip


@pytest.mark.parametrize("path", CLOSED)
def test_administration_is_closed(router: Stage, engine: Everything, path: str) -> None:
    assert {asked(router, path), asked(router, path, "POST")} == {404}
    assert engine.seen == []


TRICKS = [
    "//metrics", "/./metrics", "/v1/../metrics", "/v1/models/../../metrics", "/%6detrics", "/metrics/",
    "/v1/..%2Fmetrics", "/v1/models/%2e%2e/%2e%2e/metrics", "/v1/models/%2E%2E%2F%2e%2e%2fmetrics",
    "/v1%2F..%2Fmetrics", "/v1\\..\\metrics", "/v1/..\\metrics", "/v1/%2e%2e%5cmetrics", "/v1//load_lora_adapter",
    "/v1/load_lora_adapter/", "/v1/%6coad_lora_adapter", "/v1/load%5flora%5Fadapter", "/v1/load_lora_adapter;x=1",
    "/v1;x/load_lora_adapter", "/v1/x/..;/load_lora_adapter", "/v1/LOAD_LORA_ADAPTER", "/v1/x/../load_lora_adapter",
    "/v1/x%2F..%2Fload_lora_adapter", "/v1%2Fload_lora_adapter", "/v1/load_lora_adapter?x=/v1/models",
    "/metrics?x=/v1/models", "/v1/models%3F/../../metrics", "/%76%31/load_lora_adapter", "/v1/load_lora_adapter%20",
    "/v1/load_lora_adapter%00", "/v1/%2e/load_lora_adapter",
]  # fmt: skip


@pytest.mark.parametrize("path", TRICKS)
def test_no_way_of_writing_a_path_gets_around_it(router: Stage, engine: Everything, path: str) -> None:
    assert asked(router, path, "POST") in (400, 404)
    assert engine.seen == []


def test_an_address_in_the_request_line_does_not_get_around_it(router: Stage, engine: Everything) -> None:
    assert asked(router, "http://x/metrics") == 404
    assert asked(router, "http://x/v1/models") == 200
    assert engine.seen == ["/v1/models"]


def test_a_refusal_names_the_flag_and_the_picker_is_not_asked(router: Stage) -> None:
    router.loop.call(router.picker.forget)
    answer = router.ask(path="/metrics")
    assert answer.headers["content-type"] == "application/json"
    error = json.loads(answer.body)["error"]
    assert (error["code"], error["type"]) == (404, "NotFoundError")
    assert "--open-path" in error["message"]
    assert router.picker.streams == []


@pytest.mark.parametrize("mode", list(ResponseMode), ids=lambda mode: str(mode.value))
def test_refusals_are_counted(loop: Background, tmp_path: Path, mode: ResponseMode) -> None:
    with stage(loop, tmp_path, response_mode=mode) as router:
        for _ in range(3):
            assert router.ask(path="/metrics").status == 404
        loop.until(lambda: router.picker.log.statistics().closed_path == 3)


def test_an_opened_path_is_open_with_all_below_it(loop: Background, engine: Everything, tmp_path: Path) -> None:
    with stage(loop, tmp_path, open_paths=("/metrics", "/v1/load_lora_adapter", "/a.b")) as router:
        lead_to(router, engine)
        for path in ("/metrics", "/metrics/x", "/v1/load_lora_adapter", "/a.b"):
            assert asked(router, path) == 200
        for path in ("/metricsx", "/v1/unload_lora_adapter", "/aXb"):
            assert asked(router, path) == 404


def test_all_paths_can_be_open(loop: Background, engine: Everything, tmp_path: Path) -> None:
    with stage(loop, tmp_path, open_paths=("all",)) as router:
        lead_to(router, engine)
        assert {asked(router, path) for path in CLOSED} == {200}
