"""What the user's own endpoints report about themselves, as far as the workload depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from epp.lab.demo.stack import DemoError


class ModelCard(msgspec.Struct, frozen=True):
    """One model that is served."""

    id: str
    max_model_len: int | None = None


class ModelList(msgspec.Struct, frozen=True):
    """The answer of ``/v1/models``."""

    data: list[ModelCard]


@dataclass(frozen=True, slots=True)
class Servers:
    """The properties of all endpoints together. Units: tokens."""

    model: str
    max_model_len: int
    gpu_tokens: int
    """Capacity of all GPU caches together; 0 if any of them does not report it."""


async def look(session: aiohttp.ClientSession, endpoints: Sequence[str]) -> Servers:
    """Query every endpoint. Raises: DemoError that names the one that does not answer like a vLLM server."""
    cards = [await served_model(session, endpoint) for endpoint in endpoints]
    for endpoint, card in zip(endpoints, cards, strict=True):
        if card.id != cards[0].id:
            raise DemoError(
                f"{endpoint} serves {card.id}, {endpoints[0]} serves {cards[0].id}; give endpoints of one model"
            )
    gpu_tokens = [await cache_tokens(session, endpoint) for endpoint in endpoints]
    lengths = [card.max_model_len for card in cards if card.max_model_len]
    return Servers(cards[0].id, min(lengths, default=4096), sum(gpu_tokens) if all(gpu_tokens) else 0)


async def served_model(session: aiohttp.ClientSession, endpoint: str) -> ModelCard:
    """Return the first model that ``endpoint`` serves. Raises: DemoError if it does not report one."""
    url = f"http://{endpoint}/v1/models"
    try:
        async with session.get(url) as response:
            return msgspec.json.decode(await response.read(), type=ModelList).data[0]
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, IndexError) as error:
        raise DemoError(
            f"{url} does not name a model ({str(error) or type(error).__name__}); is it a vLLM server?"
        ) from error


async def cache_tokens(session: aiohttp.ClientSession, endpoint: str) -> int:
    """Return the size of ``endpoint``'s GPU cache from its metrics; 0 if it does not report it."""
    try:
        async with session.get(f"http://{endpoint}/metrics") as response:
            return read_cache_tokens(await response.text())
    except (aiohttp.ClientError, TimeoutError):
        return 0


def read_cache_tokens(text: str) -> int:
    """Return blocks times block size in a Prometheus exposition, summed over all its engines."""
    total = 0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "vllm:cache_config_info":
                blocks, size = sample.labels.get("num_gpu_blocks", ""), sample.labels.get("block_size", "")
                total += int(blocks) * int(size) if blocks.isdecimal() and size.isdecimal() else 0
    return total
