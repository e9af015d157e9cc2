"""Precise mode behind a real Envoy, with simulated engines that publish what they keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from socket import socket
from typing import Any
from urllib.request import Request, urlopen

import openai
import pytest
import zmq

from epp.errors import ConfigError
from epp.lab.engine.cli import bind, endpoints
from epp.lab.engine.preset import DEMO
from epp.lab.engine.publisher import EventPublisher
from scorers.base import Slot
from tests.e2e.site.background import Background
from tests.e2e.site.router import LOOPBACK, Router, router

pytestmark = pytest.mark.e2e

ENGINE = replace(DEMO, cpu_blocks=0)
TRIES = 20
PRECISE = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: precise-prefix-cache-producer
    parameters:
      kvEventsConfig: {podDiscoveryConfig: {socketPortOffset: %d, replaySocketPortOffset: %d}}
  - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
"""
APPROXIMATE = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: prefix-cache-scorer}]
"""


@dataclass
class Served:
    """A simulated engine as the router sees it."""

    address: str


@contextmanager
def engines(loop: Background) -> Iterator[tuple[list[Served], int, int]]:
    """Run two engines on consecutive ports; yield them and the distances to their ports for events and for replays."""
    stack = AsyncExitStack()

    async def publishers() -> list[EventPublisher]:
        """Return two publishers, each port of the second after that of the first; a taken port is tried again."""
        for _ in range(TRIES):
            one = EventPublisher(LOOPBACK, 0, 0)
            try:
                return [one, EventPublisher(LOOPBACK, one.port + 1, one.replay_port + 1)]
            except zmq.ZMQError:
                one.close()
        raise AssertionError(f"no two ports in a row are free, {TRIES} times")

    def sockets() -> list[socket]:
        for _ in range(TRIES):
            (one,) = bind(LOOPBACK, 0, 1)
            try:
                return [one, *bind(LOOPBACK, one.getsockname()[1] + 1, 1)]
            except ConfigError:
                one.close()
        raise AssertionError(f"no two ports in a row are free, {TRIES} times")

    async def start() -> tuple[list[Served], int, int]:
        publish = await publishers()
        for publisher in publish:
            stack.callback(publisher.close)
        served = sockets()
        first, told = served[0].getsockname()[1], publish[0]
        await stack.enter_async_context(endpoints(ENGINE, served, publishers=publish))
        return [Served(f"{LOOPBACK}:{first + n}") for n in (0, 1)], told.port - first, told.replay_port - first

    try:
        yield loop.run(start())
    finally:
        loop.run(stack.aclose())


def cached(client: openai.OpenAI, prompt: list[int]) -> int:
    answer = client.completions.create(model=ENGINE.model, prompt=prompt, max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    return answer.usage.prompt_tokens_details.cached_tokens or 0


def served_after_an_eviction(routed: Router, served: list[Served]) -> int:
    """Return the cached tokens of a prompt that one engine lost and another received, neither through the picker."""
    random = Random(7)
    prompt = [random.randrange(150_000) for _ in range(16 * 20 + 1)]
    direct = [f"http://{each.address}" for each in served]
    with (
        openai.OpenAI(base_url=f"{direct[0]}/v1", api_key="none") as first,
        openai.OpenAI(base_url=f"{direct[1]}/v1", api_key="none") as second,
    ):
        cached(routed.client, prompt)
        holds = 0 if cached(first, prompt) else 1
        assert cached(routed.client, prompt) == 320, "it goes where it was sent"
        urlopen(Request(f"{direct[holds]}/reset_prefix_cache", method="POST")).close()
        cached((second, first)[holds], prompt)
    routed.settle()
    precise = routed.picker.core.precise
    if precise is not None:
        slot = Slot(1 - holds)

        def said() -> Any:
            status = precise.status(slot)
            gone = precise.status(Slot(holds))
            return status is not None and gone is not None and status.tokens[0] >= 320 and gone.tokens[0] == 0

        routed.loop.until(said, "both engines have told")
    return cached(routed.client, prompt)


def test_a_prompt_goes_to_who_holds_it_after_an_eviction_that_nobody_told_the_picker_of(
    loop: Background, tmp_path: Path
) -> None:
    with engines(loop) as (served, events, replays):
        config = tmp_path / "picker.yaml"
        config.write_text(PRECISE % (events, replays))
        with router(loop, served, config_file=config) as routed:  # type: ignore[arg-type]
            precise = routed.picker.core.precise
            assert precise is not None
            routed.loop.until(lambda: [status.why for status in precise.statuses()] == ["", ""], "both are known")
            assert served_after_an_eviction(routed, served) == 320
    with engines(loop) as (served, _, _):
        config.write_text(APPROXIMATE)
        with router(loop, served, config_file=config) as routed:  # type: ignore[arg-type]
            assert served_after_an_eviction(routed, served) == 0, "without events, the picker cannot know"
