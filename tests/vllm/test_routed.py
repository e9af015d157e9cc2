"""Two real vLLM servers with kvengine behind a real Envoy.

The picker's predictions of cache hits are compared with the servers' hits, for a working set that exceeds both tiers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest

from benchmarks.kvengine.long_text import long_text
from tests.vllm.ahead import Ahead, Make
from tests.vllm.engine import BLOCK_TOKENS, PATIENCE_S, Tokens
from tests.vllm.router import Router, router, tierwise
from tests.vllm.serving import Server, free_port, server

TOKEN_BYTES = 3 * 2 * 2 * 32 * 4  # layers, keys and values, heads, head size, float32
GPU_BLOCKS = 192
CPU_TOKENS = 16_384
SYSTEMS, QUESTIONS = 6, 4
REQUESTS = 80
EVENTS, REPLAYS = 1, 2
"""The distance of these ports from the serving port."""

HORIZON = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: queue-scorer
  - type: kv-cache-utilization-scorer
  - {{type: approx-prefix-cache-producer, name: gpu-prefix-cache-producer}}
  - {{type: approx-prefix-cache-producer, name: cpu-prefix-cache-producer}}
  - {{type: prefix-cache-scorer, name: gpu, parameters: {{prefixMatchInfoProducerName: gpu-prefix-cache-producer}}}}
  - {{type: prefix-cache-scorer, name: cpu, parameters: {{prefixMatchInfoProducerName: cpu-prefix-cache-producer}}}}
schedulingProfiles:
  - name: default
    plugins:
      - {{pluginRef: queue-scorer, weight: 2}}
      - {{pluginRef: kv-cache-utilization-scorer, weight: 2}}
      - {{pluginRef: gpu, weight: 1}}
      - {{pluginRef: cpu, weight: 1}}
"""
PRECISE = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: queue-scorer
  - {{type: token-producer, parameters: {{local: {{models: [{{path: "{model}", name: base}}]}}}}}}
  - type: precise-prefix-cache-producer
    parameters:
      speculativeIndexing: true
      kvEventsConfig: {{podDiscoveryConfig: {{socketPortOffset: {events}, replaySocketPortOffset: {replays}}}}}
  - {{type: prefix-cache-scorer, parameters: {{prefixMatchInfoProducerName: precise-prefix-cache-producer}}}}
schedulingProfiles:
  - name: default
    plugins:
      - {{pluginRef: queue-scorer, weight: 2}}
      - {{pluginRef: prefix-cache-scorer, weight: 2}}
"""


class Answer(NamedTuple):
    """The result of one request. Units: tokens."""

    tokens: Tokens
    prompt: int
    cached: int


@dataclass
class Fleet:
    servers: Sequence[Server]

    @property
    def addresses(self) -> list[str]:
        return [each.url.removeprefix("http://") for each in self.servers]

    def counted(self, name: str) -> float:
        return sum(each.series(name) for each in self.servers)

    def forget(self) -> None:
        """Empty all tiers, and step once more, since an engine publishes events in its next step."""
        for each in self.servers:
            each.settle()
            each.reset(external=True)
            each.settle()


def ask(url: str, prompt: str, **more: str) -> Answer:
    body = {
        "model": "base", "prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True,
        "return_token_ids": True, **more,
    }  # fmt: skip
    request = Request(f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=PATIENCE_S) as response:
        answer = json.loads(response.read())
    usage = answer["usage"]
    cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
    return Answer(answer["choices"][0]["token_ids"], usage["prompt_tokens"], cached)


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    """Return prompts of about 2,000 tokens, half of which each prompt shares with three others."""
    text = long_text(400_000)
    systems = [text[n * 9_000 :][:4_900] for n in range(SYSTEMS)]
    return [
        f"{n} {system} {m} {text[200_000 + (n * QUESTIONS + m) * 5_000 :][:4_900]}"
        for n, system in enumerate(systems)
        for m in range(QUESTIONS)
    ]


@pytest.fixture(scope="module")
def fleet(ahead: Ahead) -> Iterator[Fleet]:
    found: Fleet = ahead["fleet"]
    yield found
    ahead.end("fleet")


@contextmanager
def fleet_of_two(model: Path, _: Path) -> Iterator[Fleet]:
    tierwise()  # skips the tests that use the fleet before anything is started
    with ExitStack() as stack, ThreadPoolExecutor() as threads:

        def start() -> Server:
            port = free_port()
            events = {
                "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{port + EVENTS}",
                "replay_endpoint": f"tcp://*:{port + REPLAYS}",
            }  # fmt: skip
            environment = {
                "KVENGINE_CHUNK_SIZE": "64",
                "KVENGINE_CPU_BYTES_TO_USE": str(CPU_TOKENS * TOKEN_BYTES),
            }
            options = ("--num-gpu-blocks-override", str(GPU_BLOCKS), "--enable-prompt-tokens-details")
            return stack.enter_context(
                server(model, {}, environment, *options, "--kv-events-config", json.dumps(events), port=port)
            )

        yield Fleet([each.result() for each in [threads.submit(start) for _ in range(2)]])


AHEAD: dict[str, Make] = {"fleet": fleet_of_two}


@pytest.fixture(scope="module")
def cold(fleet: Fleet, prompts: Sequence[str]) -> list[Answer]:
    """Return the answers to the prompts when nothing is cached."""
    answers = [
        ask(fleet.servers[n % 2].url, prompt, cache_salt=f"no other request's {n}") for n, prompt in enumerate(prompts)
    ]
    assert {answer.cached for answer in answers} == {0}
    assert len({tuple(answer.tokens) for answer in answers}) > len(prompts) / 2, "most answers differ"
    held = BLOCK_TOKENS * GPU_BLOCKS
    assert sum(answer.prompt for answer in answers) > 2 * (held + CPU_TOKENS), "more than both hold in all tiers"
    return answers


def ask_all(routed: Router, prompts: Sequence[str], cold: Sequence[Answer]) -> tuple[int, int]:
    """Send prompts, some much more often than others; return their tokens, and how many of them were cached."""
    random = Random(11)
    weights = [1 / (1 + n) for n in range(len(prompts))]
    total = cached = 0
    for n in random.choices(range(len(prompts)), weights, k=REQUESTS):
        answer = ask(routed.url, prompts[n])
        assert answer.tokens == cold[n].tokens, f"prompt {n}, {answer.cached} of {answer.prompt} tokens cached"
        total, cached = total + answer.prompt, cached + answer.cached
    return total, cached


def accuracy(routed: Router, mode: str) -> float:
    """Return 1 - error / prompt tokens, over all requests."""
    (error,) = routed.series("tierwise_prediction_error_tokens_total", tier="total", mode=mode)
    (predicted,) = routed.series("tierwise_prediction_prompt_tokens_total", tier="total", mode=mode)
    modes = routed.series("tierwise_prediction_prompt_tokens_total", tier="total")
    assert predicted > 0.95 * sum(modes), f"{mode} was the mode of {predicted} tokens of {sum(modes)}"
    return 1 - error / predicted


@pytest.mark.parametrize(("mode", "config", "least"), [("horizon", HORIZON, 0.95), ("precise", PRECISE, 0.99)])
def test_the_pickers_predictions_are_what_the_engines_find(
    fleet: Fleet, prompts: Sequence[str], cold: Sequence[Answer], model: Path, tmp_path: Path, mode: str, config: str,
    least: float,
) -> None:  # fmt: skip
    fleet.forget()
    loaded = fleet.counted("kvengine:lookup_hit_tokens_total")
    file = tmp_path / "picker.yaml"
    file.write_text(config.format(model=model, events=EVENTS, replays=REPLAYS))
    with router(file, fleet.addresses, "--response-mode", "full", "--ask-kvengine") as routed:
        total, cached = ask_all(routed, prompts, cold)
        found = accuracy(routed, mode)
        tiers = {
            tier: routed.series("tierwise_actual_cached_tokens_total", tier=tier, mode=mode) for tier in ("gpu", "cpu")
        }
        print(f"{mode}: accuracy {found:.4f}; {cached:,} of {total:,} tokens cached, by tier {tiers}")
        assert found >= least, routed.log()
    assert cached > 0.5 * total, "requests go where their prompts are"
    assert fleet.counted("kvengine:lookup_hit_tokens_total") > loaded, "not only from GPU memory"
