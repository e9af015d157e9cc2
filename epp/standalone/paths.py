"""Which paths of the engines clients may use: patterns (RE2) for Envoy's routes.

A path is compared in the form that the engine will read: Envoy has already resolved dots, merged slashes and decoded
``%2F``. Remaining percent signs cannot spell a name here, because the part of a path that decides must be plain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

EVERYTHING = "all"
"""The flag's value for every path."""

OPEN = (
    r"/v1/[\w-]+(?:/[^;]*)?",  # the OpenAI and Anthropic APIs, and the engines' additions to them
    r"/v2/(?:chat|embed|rerank)",  # the Cohere API
    r"/cohere/v[12]/[\w-]+",
    r"/inference/v1/[\w-]+(?:/[\w-]+)?",  # vLLM: tokens in, tokens out
    r"/(?:v1/)?(?:tokenize|detokenize|render|derender)",
    r"/(?:pooling|classify|score|rerank|generative_scoring|invocations)",
    r"/(?:generate|encode)",  # SGLang
    r"/(?:health|health_generate|ping|version)",
    r"/vllm\.grpc\.engine\.VllmEngine/(?:Generate|Embed|HealthCheck|GetModelInfo|GetTokenizer)",
    r"/[\w.]*PredictionService/\w+",  # Vertex AI
)
"""Inference, and the health of an engine."""

HOLES = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/loads")
"""Administration under a path of ``OPEN``; matched in any case."""


def open_pattern(opened: Sequence[str]) -> str | None:
    """Return the pattern of paths open to clients, including ``opened`` and all below it; None for every path."""
    if EVERYTHING in opened or "/" in opened:
        return None
    return "|".join((*OPEN, *(_and_below(path) for path in opened)))


def closed_pattern(opened: Sequence[str]) -> str | None:
    """Return the pattern of closed paths among those of ``open_pattern``; None if there are none."""
    holes = [hole for hole in HOLES if not any(f"{hole}/".startswith(f"{path}/") for path in opened)]
    if open_pattern(opened) is None or not holes:
        return None
    return f"(?i:{'|'.join(_and_below(hole) for hole in holes)})"


def _and_below(path: str) -> str:
    return f"{re.escape(path)}(?:/.*)?"
