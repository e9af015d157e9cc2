"""When a whole picker is ready, and the sentence about it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.pool.pool import Endpoint
from epp.server.app import App
from epp.server.settings import Settings
from tests.epp.scrape.engines import mute

PATIENCE_S = 20.0
UNREAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\ndataLayer: {injectDefaults: false}\n"


async def readyz(app: App) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{app.metrics_port}/readyz") as response,
    ):
        return response.status, (await response.text()).strip()


async def until(app: App, status: int, sentence: str) -> None:
    """Query the page until it has this answer; the test's time limit ends the wait."""
    while await readyz(app) != (status, sentence):  # noqa: ASYNC110 - only asking tells
        await asyncio.sleep(0.02)


async def running(stack: AsyncExitStack, settings: Settings, config: str | None = None) -> App:
    app = App(build(load_text(config) if config else None), settings)
    await app.start()
    stack.push_async_callback(app.stop, 0.0)
    return app


def test_a_picker_without_a_list_of_endpoints_is_not_ready_and_says_which_file_it_waits_for(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.yaml"

    async def scenario() -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
            app = await running(stack, Settings(endpoints_file=path), UNREAD)
            assert await readyz(app) == (
                503,
                f"not ready: there is no list of endpoints: {path}: No such file or directory",
            )
            path.write_text("endpoints: [{address: 10.0.0.1, port: 8000}]")
            await until(app, 200, "ready")
            path.write_text("endpoints: 7")
            await until(
                app,
                200,
                "ready, but the list of endpoints may be out of date: "
                f"{path}: endpoints: missing, or not a list; write endpoints: [] for none",
            )
            path.write_text("endpoints: []")
            await until(app, 200, "ready, but there are no endpoints")

    asyncio.run(scenario())


def test_endpoints_that_do_not_answer_leave_the_picker_ready_and_are_counted_in_what_it_says() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
            silent = stack.enter_context(mute())
            app = await running(stack, Settings(endpoints=("127.0.0.1:9", silent)))
            assert await readyz(app) == (200, "ready, but 2 of 2 endpoints have no recent metrics")
            app.pool.replace([Endpoint("127.0.0.1:9")])
            await until(app, 200, "ready, but no endpoint answers: requests get 503 until one does")

    asyncio.run(scenario())


def test_a_picker_that_drains_says_so() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
            app = await running(stack, Settings(endpoints=("127.0.0.1:9",)), UNREAD)
            app.drain()
            assert await readyz(app) == (503, "not ready: stopping")

    asyncio.run(scenario())
