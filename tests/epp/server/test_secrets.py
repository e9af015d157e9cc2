"""Prompts, answers and keys appear in no output: the most verbose log, /metrics, the debug port and refusals."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from grpc import aio

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.explain.options import DebugOptions
from epp.extproc.options import ErrorFormat, ExchangeSettings
from epp.extproc.service import PROCESS
from epp.pb.ext_proc_pb2 import ProcessingRequest, ProcessingResponse
from epp.runtime.logs import set_up
from epp.runtime.options import LogFormat, LogOptions
from epp.server.app import App
from epp.server.settings import Settings, Transport
from tests.epp.doubles import request_body, request_headers, response_body, response_headers
from tests.epp.runtime.test_logs import loggers_as_before

__all__ = ["loggers_as_before"]

LOOPBACK = "127.0.0.1"
CANARY = "kanarienvogel"
TOKEN = 98765432109876
"""A token id that no engine knows."""
SECRETS = {
    "authorization": f"Bearer {CANARY}",
    "cookie": f"session={CANARY}",
    "x-api-key": CANARY,
    "api-key": CANARY,
    "proxy-authorization": f"Basic {CANARY}",
    "x-session-token": CANARY,
    "x-session-id": CANARY,
    "x-claude-code-session-id": CANARY,
    "x-anything": CANARY,
}
PATH = f"/v1/completions?key={CANARY}"
TEXT = f"tell nobody about the {CANARY} "


def encoded(**body: object) -> bytes:
    return json.dumps({"model": "m", **body}).encode()


BODIES: dict[str, tuple[str, bytes]] = {
    "a prompt": (PATH, encoded(prompt=TEXT * 50, user=CANARY)),
    "a salted prompt": (PATH, encoded(prompt=TEXT * 50, cache_salt=CANARY)),
    "prompts": (PATH, encoded(prompt=[TEXT, TEXT])),
    "a prompt of another type": (PATH, encoded(prompt={"x": CANARY})),
    "a prompt of many types": (PATH, encoded(prompt=[CANARY, 7, None])),
    "a token id beyond any": (PATH, encoded(prompt=[TOKEN])),
    "no model": (PATH, json.dumps({"prompt": TEXT}).encode()),
    "a model of another type": (PATH, json.dumps({"model": [CANARY], "prompt": TEXT}).encode()),
    "no JSON": (PATH, CANARY.encode()),
    "half of JSON": (PATH, encoded(prompt=TEXT)[:-1]),
    "no UTF-8": (PATH, encoded(prompt=TEXT).replace(b"tell", b"\xff\xfe")),
    "a list": (PATH, json.dumps([CANARY]).encode()),
    "nested": (PATH, b'{"model":"m","prompt":"' + CANARY.encode() + b'","x":' + b"[" * 100_000),
    "too large": (PATH, encoded(prompt=TEXT * 10_000)),
    "messages": (f"/v1/chat/completions?k={CANARY}", encoded(messages=[{"role": "user", "content": TEXT}])),
    "a role of its own": ("/v1/chat/completions", encoded(messages=[{"role": CANARY, "content": TEXT}])),
    "a part of its own": ("/v1/chat/completions", encoded(messages=[{"role": "user", "content": [{"type": CANARY}]}])),
    "messages of another type": ("/v1/chat/completions", encoded(messages=CANARY)),
    "tools": ("/v1/chat/completions", encoded(messages=[{"role": "user", "content": "x"}], tools=[{"name": CANARY}])),
    "an input": ("/v1/embeddings", encoded(input=TEXT)),
    "an input of another type": ("/v1/embeddings", encoded(input={"a": CANARY})),
    "a response": ("/v1/responses", encoded(input=TEXT, instructions=CANARY)),
    "a message": ("/v1/messages", encoded(system=CANARY, max_tokens=9, messages=[{"role": "user", "content": TEXT}])),
    "a message of another type": ("/v1/messages", encoded(max_tokens=CANARY, messages=[CANARY])),
    "an unknown path": (f"/tokenize?token={CANARY}", encoded(prompt=TEXT)),
}
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: queue-scorer}
  - {type: session-affinity-scorer}
  - {type: prefix-cache-scorer, parameters: {tier: cpu, lruCapacityPerServer: 4000}}
schedulingProfiles:
  - name: default
    plugins: [{pluginRef: queue-scorer}, {pluginRef: session-affinity-scorer}, {pluginRef: prefix-cache-scorer}]
"""


async def exchange(app: App, messages: list[ProcessingRequest], *, leave: bool = False) -> list[ProcessingResponse]:
    """Return all answers of the picker to ``messages``."""
    answers = []

    async def said() -> AsyncIterator[bytes]:
        for message in messages:
            yield message.SerializeToString()

    async with aio.insecure_channel(f"{LOOPBACK}:{app.grpc_port}") as channel:
        call = channel.stream_stream(PROCESS)(said(), timeout=20)
        try:
            async for answer in call:
                answers.append(ProcessingResponse.FromString(answer))
                if leave:
                    call.cancel()
        except (aio.AioRpcError, asyncio.CancelledError) as error:
            details = error.details() if isinstance(error, aio.AioRpcError) else ""
            assert CANARY not in str(details)
    return answers


def pieces(body: bytes) -> Iterator[ProcessingRequest]:
    for at in range(0, len(body), 60_000):
        yield request_body(body[at : at + 60_000], end_of_stream=at + 60_000 >= len(body))


@pytest.mark.usefixtures("loggers_as_before")
@pytest.mark.parametrize("form", list(LogFormat), ids=lambda form: form.value)
@pytest.mark.parametrize("transport", list(Transport), ids=lambda transport: transport.value)
def test_what_clients_keep_secret_comes_out_nowhere(
    transport: Transport, form: LogFormat, capfd: pytest.CaptureFixture[str]
) -> None:
    refusals: dict[str, bytes] = {}
    pages: list[str] = []

    async def scenario() -> None:
        settings = Settings(
            endpoints=("127.0.0.1:9",), transport=transport, debug=DebugOptions(port=0),
            exchange=ExchangeSettings(
                max_request_bytes=200_000, emit_endpoint_scores=True,
                error_format=ErrorFormat.API if form is LogFormat.JSON else ErrorFormat.TEXT,
            ),
        )  # fmt: skip
        app = App(build(load_text(CONFIG)), settings)
        await app.start()
        try:
            for name, (path, body) in BODIES.items():
                head = request_headers(**{"x-request-id": name, **SECRETS, ":path": path})
                for answer in await exchange(app, [head, *pieces(body)]):
                    if answer.WhichOneof("response") == "immediate_response":
                        refusals[name] = answer.immediate_response.body
            head = request_headers(**SECRETS, **{":path": PATH})
            ok = request_body(encoded(prompt=TEXT))
            answered = response_headers(200, **{"set-cookie": CANARY, "content-type": "application/json"})
            generated = response_body(
                json.dumps({"choices": [{"text": CANARY}], "usage": {"prompt_tokens": 1}}).encode()
            )
            await exchange(app, [head, ok, answered, generated])
            await exchange(
                app, [head, ok, response_headers(500, **{"x-error": CANARY}), response_body(CANARY.encode())]
            )
            await exchange(app, [head, ok], leave=True)
            await exchange(app, [head, head])
            await exchange(app, [response_body(CANARY.encode())])
            await exchange(app, [request_headers(end_of_stream=True, **SECRETS, **{":path": PATH})])
            await exchange(app, [request_headers(subset=[CANARY], **SECRETS), ok])
            async with aiohttp.ClientSession() as http:
                for port, path in (
                    (app.metrics_port, "/metrics"),
                    *((app.debug_port, f"/debug/{page}") for page in ("endpoints", "config", "plugins/state")),
                ):
                    async with http.get(f"http://{LOOPBACK}:{port}{path}") as response:
                        pages.append(await response.text())
                for path, body in BODIES.values():
                    url = f"http://{LOOPBACK}:{app.debug_port}/debug/explain"
                    async with http.post(url, params={"path": path}, data=body, headers=SECRETS) as response:
                        pages.append(await response.text())
        finally:
            await app.stop(0.0)

    set_up(LogOptions(verbosity=5, format=form))
    asyncio.run(scenario())
    logging.getLogger("epp").info("the end of %s", "the log")
    log = capfd.readouterr().err
    assert "the end of the log" in log
    assert {"no JSON", "no UTF-8", "nested", "too large", "no model", "a token id beyond any"} <= refusals.keys()
    assert log.count("picked ") >= 10, "stories are told"
    assert log.count("refused") >= len(refusals)
    for secret in (CANARY, "tell nobody", str(TOKEN)):
        assert secret not in log
        assert not [name for name, body in refusals.items() if secret.encode() in body]
        assert not [page for page in pages if secret in page]
