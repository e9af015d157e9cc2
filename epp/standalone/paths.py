"""Which paths of the engines clients may use: patterns (RE2) for Envoy's routes.

A path is compared as the engine will read it: Envoy has resolved dots, joined slashes and read ``%2F`` before. What is
left of percent signs cannot spell a name here, because the part of a path that decides must be plain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

EVERYTHING = "all"
"""The word for every path, in the flag."""

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
"""Inference, and whether an engine is well."""

HOLES = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/loads")
"""Administration under a path of ``OPEN``; in any case of letters."""


def open_pattern(opened: Sequence[str]) -> str | None:
    """Matches what clients may use when ``opened`` is open, too, with all below it; None for every path."""
    if EVERYTHING in opened or "/" in opened:
        return None
    return "|".join((*OPEN, *(_and_below(path) for path in opened)))


def closed_pattern(opened: Sequence[str]) -> str | None:
    """Matches what is closed although ``open_pattern`` matches it; None where nothing is."""
    holes = [hole for hole in HOLES if not any(f"{hole}/".startswith(f"{path}/") for path in opened)]
    if open_pattern(opened) is None or not holes:
        return None
    return f"(?i:{'|'.join(_and_below(hole) for hole in holes)})"


def _and_below(path: str) -> str:
    return f"{re.escape(path)}(?:/.*)?"
