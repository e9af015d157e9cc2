"""The debug port of a picker on real sockets, as an HTTP client sees it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from epp.config.load import load_text
from epp.config.options import ConfigOptions
from epp.config.wiring.build import build
from epp.decision import RequestHead
from epp.errors import ConfigError
from epp.explain.effective import plain
from epp.explain.options import DEBUG_PORT, DebugOptions
from epp.explain.server import is_address
from epp.extproc.options import ExchangeSettings
from epp.picking.model_rewrites import Rule
from epp.pool.pool import EngineMetrics
from epp.server.app import App
from epp.server.options import ServeOptions
from epp.server.settings import Settings
from epp.tracing.settings import Exporter, TraceSettings
from scorers.base import Silence, Slot

LOOPBACK = "127.0.0.1"
ENDPOINTS = ("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: queue-scorer}
  - {type: approx-prefix-cache-producer, name: gpu-prefix-cache-producer}
  - type: approx-prefix-cache-producer
    name: cpu-prefix-cache-producer
    parameters: {lruCapacityPerServer: 4000}
  - {type: prefix-cache-scorer, name: gpu-prefix, parameters: {prefixMatchInfoProducerName: gpu-prefix-cache-producer}}
  - {type: prefix-cache-scorer, name: cpu-prefix, parameters: {prefixMatchInfoProducerName: cpu-prefix-cache-producer}}
  - {type: max-score-picker, parameters: {maxNumOfEndpoints: 2}}
schedulingProfiles:
  - name: default
    plugins:
      - {pluginRef: queue-scorer, weight: 2}
      - {pluginRef: gpu-prefix}
      - {pluginRef: cpu-prefix, weight: 0.5}
      - {pluginRef: max-score-picker}
inferenceModelRewrites:
  - name: canary
    rules: [{matches: [{model: {value: alias}}], targets: [{modelRewrite: a, weight: 1}, {modelRewrite: b, weight: 1}]}]
"""
PROMPT = "sphinx of black quartz " * 100


@asynccontextmanager
async def running(
    config: str = CONFIG, options: object = ServeOptions(), **settings: Any
) -> AsyncIterator[tuple[App, aiohttp.ClientSession]]:
    chosen: dict[str, Any] = {"endpoints": ENDPOINTS, "debug": DebugOptions(port=0)}
    app = App(build(load_text(config)), Settings(**(chosen | settings)), options=options)
    await app.start()
    try:
        async with aiohttp.ClientSession(f"http://{LOOPBACK}:{app.debug_port}") as http:
            yield app, http
    finally:
        await app.stop(0.0)


def scenario(work: Callable[[App, aiohttp.ClientSession], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with running(**settings) as (app, http):
            await work(app, http)

    asyncio.run(run())


def body(**more: object) -> bytes:
    return json.dumps({"model": "m", "prompt": PROMPT, **more}).encode()


async def explain(http: aiohttp.ClientSession, content: bytes, query: str = "", **headers: str) -> Any:
    async with http.post(f"/debug/explain{query}", data=content, headers=headers) as response:
        assert response.status == 200
        return await response.json()


def test_an_explanation_has_the_numbers_of_the_decision_that_follows_it() -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        head = RequestHead({":path": "/v1/completions"})
        for slot, waiting in enumerate((4, 0, 0)):
            app.pool.observe(Slot(slot), EngineMetrics(waiting=waiting), 1.0)
        first = app.director.decide(head, body())
        said = await explain(http, body())
        decision = app.director.decide(head, body())
        assert said["pick"] == decision.chosen[0].address == first.chosen[0].address
        assert said["fallbacks"] == [decision.chosen[1].address]
        by_address = {row["address"]: row for row in said["candidates"]}
        for i, candidate in enumerate(decision.candidates):
            row = by_address[candidate.address]
            for name, (weight, column) in decision.scores.items():
                assert row["scores"][name] == {"value": column[i], "weight": weight, "product": weight * column[i]}
            assert row["total"] == pytest.approx(sum(w * column[i] for w, column in decision.scores.values()))
        held = by_address[said["pick"]]
        assert held["tokens"] == {"gpu-prefix-cache-producer": 512, "cpu-prefix-cache-producer": 512}
        assert held["tokens_by_tier"] == {"gpu": 512, "cpu": 512}
        assert said["reason"].startswith(f"{said['pick']} has the highest total")
        assert "gpu-prefix (+1.000)" in said["reason"]
        assert said["request"]["prompt_tokens"] == len(PROMPT) // 4

    scenario(work, config=CONFIG + "dataLayer: {injectDefaults: false}\n")


def test_an_explanation_says_who_is_left_out_for_its_silence() -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        app.pool.observe(Slot(0), EngineMetrics(), 1.0)
        app.pool.mark_stale(Slot(2), Silence.GONE)
        rows = {row["address"]: row["dropped_by"] for row in (await explain(http, body()))["candidates"]}
        assert rows == dict(zip(ENDPOINTS, (None, "never read", "out of reach"), strict=True))

    scenario(work, config=CONFIG + "dataLayer: {injectDefaults: false}\n")


def test_explaining_counts_learns_and_changes_nothing() -> None:
    async def seen(app: App) -> object:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{LOOPBACK}:{app.metrics_port}/metrics", headers={"Accept": "text/plain"}) as page,
        ):
            names = ("llm_d_epp", "inference_", "tierwise_plugin", "tierwise_prefix", "tierwise_endpoint_in_flight")
            return [
                line
                for line in (await page.text()).splitlines()
                if line.startswith(names) and not re.search("info|datalayer", line)
            ]

    async def work(app: App, http: aiohttp.ClientSession) -> None:
        app.director.decide(RequestHead({":path": "/v1/completions"}), body())
        before, ledger = await seen(app), len(app.ledger)
        for model in ("m", "alias", "another"):
            assert (await explain(http, body(model=model)))["pick"]
        await explain(http, b"nonsense")
        await explain(http, body(), "?subset=")
        assert await seen(app) == before
        assert len(app.ledger) == ledger

    scenario(work)


def test_the_next_draw_of_a_clusters_rule_is_the_same_after_an_explanation() -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        list(app.core.stage_rewrites({"drawn": Rule("r", ("a", "b"), (1, 1))}))
        list(app.core.change_rewrites())
        rules = app.core.plan.rewrites.resources
        before = rules.random.getstate()
        assert (await explain(http, body(model="drawn")))["request"]["target_model"] in ("a", "b")
        assert rules.random.getstate() == before

    scenario(work)


def test_the_subset_and_the_path_are_those_that_are_asked_about() -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        said = await explain(http, body(), f"?subset={ENDPOINTS[2]}")
        assert said["pick"] == ENDPOINTS[2]
        assert said["reason"] == f"{ENDPOINTS[2]} is the only candidate."
        assert {row["dropped_by"] for row in said["candidates"] if row["address"] != ENDPOINTS[2]} == {"subset"}
        chat = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
        assert (await explain(http, chat, "?path=/v1/chat/completions"))["pick"] in ENDPOINTS

    scenario(work)


@pytest.mark.parametrize(
    ("content", "query", "status"),
    [(b"nonsense", "", 400), (b"[]", "", 400), (b"\xff", "", 400), (b"", "", 400), (body(), "?subset=10.9.9.9", 503)],
)
def test_a_request_that_would_be_refused_says_with_what(content: bytes, query: str, status: int) -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        said = await explain(http, content, query)
        assert said["refusal"]["status"] == status
        assert said["reason"].startswith("The request is refused: ")
        assert said["pick"] is None

    scenario(work)


def test_headers_of_the_question_are_those_of_the_request() -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        said = await explain(http, body(), **{"x-llm-d-model-name-rewrite": "target"})
        assert said["request"]["target_model"] == "target"

    scenario(work)


def test_the_endpoints_are_shown_as_scraped_and_as_a_decision_sees_them() -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        app.pool.observe(Slot(0), EngineMetrics(waiting=2, running=3, kv_usage=0.5, gpu_blocks=100), 1.0)
        app.director.decide(RequestHead({":path": "/v1/completions"}, frozenset(ENDPOINTS[:1])), body())
        async with http.get("/debug/endpoints") as response:
            said = await response.json()
        assert (said["pool"], said["in_flight"], len(said["endpoints"])) == ("epp", 1, 3)
        only = said["endpoints"][0]
        assert (only["engine"]["waiting"], only["decision"]["waiting"]) == (2, 3), "one of ours will queue"
        assert (only["in_flight"], only["in_flight_tokens"]) == (1, len(PROMPT) // 4)
        assert only["index"]["cpu-prefix-cache-producer (cpu)"] == {
            "capacity_tokens": 64_000, "used_tokens": 512, "mode": "approximate",
        }  # fmt: skip
        assert {"age_s", "interval_s", "stale", "error", "errors"} == set(only["scrape"])

    scenario(work)


def test_the_configuration_is_the_one_in_effect() -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        async with http.get("/debug/config") as response:
            said = await response.json()
        assert said["options"]["picker"]["grpc_port"] == 9002
        assert {s["name"]: s["weight"] for s in said["profile"]["scorers"]} == {
            "queue-scorer": 2.0, "gpu-prefix": 1.0, "cpu-prefix": 0.5,
        }  # fmt: skip
        parameters = {plugin["name"]: plugin["parameters"] for plugin in said["plugins"]}
        assert parameters["cpu-prefix-cache-producer"]["lruCapacityPerServer"] == 4000
        app.core.use(build(load_text(CONFIG.replace("weight: 2}", "weight: 5}"))))
        async with http.get("/debug/config") as response:
            changed = await response.json()
        assert changed["profile"]["scorers"][0]["weight"] == 5.0

    scenario(work)


def test_plugins_say_what_they_keep() -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        app.director.decide(RequestHead({":path": "/v1/completions"}), body())
        async with http.get("/debug/plugins/state") as response:
            said = await response.json()
        assert said["plugins"]["cpu-prefix-cache-producer"]["state"]["used_tokens"] == 512
        assert said["plugins"]["queue-scorer"]["message"] == "plugin keeps no state"

    scenario(work)


def test_a_request_that_names_the_server_otherwise_is_refused() -> None:
    """Send a request as a page in a browser does whose name resolves to this machine."""

    async def work(app: App, http: aiohttp.ClientSession) -> None:
        async with http.get("/debug/endpoints", headers={"Host": "evil.example:9091"}) as response:
            assert response.status == 403

    scenario(work)


@pytest.mark.parametrize(
    ("host", "welcome"),
    [("127.0.0.1:9091", True), ("localhost", True), ("LOCALHOST:1", True), ("[::1]:9091", True), ("[::1]", True),
     ("10.0.0.7", True), ("evil.example", False), ("127.0.0.1.evil.example:9091", False), ("", False),
     ("[evil]:1", False)],
)  # fmt: skip
def test_addresses_and_localhost_are_welcome(host: str, welcome: bool) -> None:
    assert is_address(host) is welcome


def test_a_body_beyond_the_limit_is_refused() -> None:
    async def work(app: App, http: aiohttp.ClientSession) -> None:
        async with http.post("/debug/explain", data=b"x" * 5000) as response:
            assert response.status == 413

    scenario(work, exchange=ExchangeSettings(max_request_bytes=4096))


def test_the_default_port_may_be_taken_and_a_chosen_one_may_not(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind((LOOPBACK, DEBUG_PORT))
                taken.listen()
            except OSError:
                pass  # somebody else has taken it, which will do
            async with running(debug=DebugOptions()) as (app, http):
                assert app.debug_port not in (0, DEBUG_PORT)
                [warning] = [
                    r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "9091" in r.msg % r.args
                ]
                assert warning.endswith(f"tierwise explain --url http://{LOOPBACK}:{app.debug_port}")
                async with http.get("/") as response:
                    assert "POST /debug/explain" in await response.text()
        with socket.create_server((LOOPBACK, 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ConfigError, match="--debug-port"):
                async with running(debug=DebugOptions(port=port)):
                    pass

    asyncio.run(run())


@pytest.mark.parametrize("debug", [None, DebugOptions(enabled=False)])
def test_without_it_nothing_listens(debug: DebugOptions | None) -> None:
    async def run() -> None:
        app = App(build(), Settings(endpoints=ENDPOINTS, debug=debug))
        await app.start()
        assert app.debug_port == 0
        await app.stop(0.0)

    asyncio.run(run())


def test_neither_a_written_out_configuration_nor_the_password_in_an_address_is_shown() -> None:
    written = f"# canary-comment\n{CONFIG}\n# token: canary-token\n"
    tracing = TraceSettings(Exporter.OTLP, "https://canary-user:canary-password@collector:4317/v1?x=a@b", 1.0, "s")
    options = ServeOptions(config=ConfigOptions(inline=written), picker=Settings(tracing=tracing))

    async def work(app: App, http: aiohttp.ClientSession) -> None:
        async with http.get("/debug/config") as response:
            text = await response.text()
        said = json.loads(text)["options"]
        assert "canary" not in text
        assert said["config"]["inline"] == "(set)"
        assert said["picker"]["tracing"]["endpoint"] == "https://collector:4317/v1?x=a@b"

    scenario(work, options=options)


def test_a_configuration_that_nobody_wrote_out_is_shown_as_none() -> None:
    assert plain(ServeOptions())["config"]["inline"] is None


@pytest.mark.parametrize(
    "text", ["http://a:b@h", "x http://a@h:1/p y", "(ftp://a:b@c@h)", "http://h/x@y", "mail a@h", "http://h?x=a@h"]
)
def test_only_names_and_passwords_are_taken_out_of_addresses(text: str) -> None:
    expected = {"http://a:b@h": "http://h", "x http://a@h:1/p y": "x http://h:1/p y", "(ftp://a:b@c@h)": "(ftp://h)"}
    assert plain({"deep": [text]}) == {"deep": [expected.get(text, text)]}
