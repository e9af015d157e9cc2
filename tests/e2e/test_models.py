"""Endpoints of different models behind one router, as a client's SDK sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import openai
import pytest
from aiohttp import web

from epp.extproc.options import ErrorFormat
from epp.lab.engine.live import LiveEngine
from epp.lab.engine.preset import PRESETS
from epp.lab.engine.server import Endpoint
from tests.e2e.site.background import Background
from tests.e2e.site.router import Router, behind_gateway, router

pytestmark = pytest.mark.e2e

QWEN, LLAMA = "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct"


@dataclass
class Simulated:
    """A simulated endpoint that is running."""

    address: str
    runner: web.AppRunner
    live: LiveEngine


async def start(preset: str) -> Simulated:
    endpoint = Endpoint(PRESETS[preset], speed=1000.0)
    runner = web.AppRunner(endpoint.application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return Simulated(f"127.0.0.1:{runner.addresses[0][1]}", runner, endpoint.live)


@pytest.fixture(scope="module")
def simulated(loop: Background) -> Iterator[list[Simulated]]:
    made = [loop.run(start(preset)) for preset in ("qwen3-32b-tp2-h100", "llama-3.1-8b-l4")]
    yield made
    for each in made:
        loop.run(each.runner.cleanup())


@pytest.fixture(scope="module", params=["standalone", "full duplex"])
def mixed(
    request: pytest.FixtureRequest,
    loop: Background,
    simulated: list[Simulated],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Router]:
    if request.param == "standalone":
        with router(loop, simulated) as running:
            yield known(loop, running)
    else:
        with behind_gateway(
            loop, simulated, tmp_path_factory.mktemp("gateway"), error_format=ErrorFormat.API
        ) as running:
            yield known(loop, running)


def known(loop: Background, running: Router) -> Router:
    catalog, pool = running.picker.core.catalog, running.picker.pool
    loop.until(lambda: all(catalog.cards(c.address) for c in pool.candidates()), "both endpoints have listed models")
    return running


def test_every_request_is_answered_by_an_endpoint_of_its_model(mixed: Router) -> None:
    for _ in range(8):
        for model in (QWEN, LLAMA):
            answer = mixed.client.completions.create(model=model, prompt="hello", max_tokens=2)
            assert answer.model == model
            say = [{"role": "user", "content": "hello"}]
            chat = mixed.client.chat.completions.create(model=model, messages=say, max_tokens=2, stream=True)
            assert {piece.model for piece in chat} == {model}


def test_the_list_of_models_is_that_of_all_endpoints(mixed: Router) -> None:
    listed = {model.id: model for model in mixed.client.models.list().data}
    assert set(listed) == {QWEN, LLAMA}
    assert listed[LLAMA].model_extra is not None
    assert listed[LLAMA].model_extra["max_model_len"] == PRESETS["llama-3.1-8b-l4"].max_model_len
    assert mixed.client.models.retrieve(QWEN).id == QWEN
    status, text = mixed.ask("/models", headers={"anthropic-version": "2023-06-01"})
    assert status == 200
    assert {model["type"] for model in json.loads(text)["data"]} == {"model"}


def test_a_model_that_nobody_serves_is_not_found(mixed: Router) -> None:
    with pytest.raises(openai.NotFoundError, match="The model `nope` does not exist"):
        mixed.client.completions.create(model="nope", prompt="hello")
    with pytest.raises(openai.NotFoundError, match="The model `nope` does not exist"):
        mixed.client.models.retrieve("nope")


def test_tokens_are_counted_where_the_model_is_served(mixed: Router) -> None:
    for _ in range(6):
        for model in (QWEN, LLAMA):
            client = mixed.client.with_options(base_url=f"http://127.0.0.1:{mixed.port}")
            answer = client.post("/tokenize", body={"model": model, "prompt": "hello"}, cast_to=object)
            assert answer
