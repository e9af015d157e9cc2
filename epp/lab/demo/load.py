"""Sends a workload with a fixed number of concurrent requests, and measures what a client sees."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from epp.lab.demo.workload import Prompt

ANSWER_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The outcome of one request. ``ttft_s`` is None if no content came; ``error`` is empty if all of it came."""

    group: int
    ttft_s: float | None
    e2e_s: float
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str = ""


class Usage(msgspec.Struct, frozen=True):
    """The token counts that the server reports."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Delta(msgspec.Struct, frozen=True):
    """A piece of an answer."""

    content: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """The choice that a piece belongs to."""

    delta: Delta = Delta()


class Event(msgspec.Struct, frozen=True):
    """One event of the stream."""

    choices: list[Choice] = []
    usage: Usage | None = None


DECODER = msgspec.json.Decoder(Event)


async def run(
    base_url: str, model: str, prompts: Sequence[Prompt], concurrency: int, done: Callable[[Sample], None]
) -> list[Sample]:
    """Send ``prompts`` in order, ``concurrency`` at a time (closed loop); ``done`` is called as each ends."""
    samples: list[Sample] = []
    queue = iter(prompts)
    timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN_S)
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(base_url, timeout=timeout, connector=connector) as session:

        async def client(queue: Iterator[Prompt]) -> None:
            for prompt in queue:
                sample = await ask(session, model, prompt)
                samples.append(sample)
                done(sample)

        async with asyncio.TaskGroup() as clients:
            for _ in range(concurrency):
                clients.create_task(client(queue))
    return samples


async def ask(session: aiohttp.ClientSession, model: str, prompt: Prompt) -> Sample:
    """Stream one answer. Never raises: errors are in the sample."""
    body = {
        "model": model,
        "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.question}],
        "max_tokens": prompt.output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began = time.perf_counter()
    first: float | None = None
    usage = Usage()
    error = "the stream ended early"
    try:
        headers = {"content-type": "application/json"}
        async with session.post("/v1/chat/completions", data=msgspec.json.encode(body), headers=headers) as response:
            if response.status != 200:
                error = f"HTTP {response.status}: {(await response.text())[:200]}"
            else:
                async for line in response.content:
                    if not line.startswith(b"data: "):
                        continue
                    if line.startswith(b"data: [DONE]"):
                        error = ""
                        continue
                    event = DECODER.decode(line[6:])
                    if first is None and any(choice.delta.content for choice in event.choices):
                        first = time.perf_counter() - began
                    usage = event.usage or usage
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    e2e_s = time.perf_counter() - began
    return Sample(prompt.group, first, e2e_s, usage.prompt_tokens, usage.completion_tokens, error)
