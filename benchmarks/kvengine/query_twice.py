"""How much sooner does a response begin when its long prompt was seen before?

Sends the same long question to any OpenAI endpoint twice, streamed, and prints the time to the first piece of content
of both. The text is invented from ``--seed``; ``--fresh-prefix`` begins it with random words, so that the first request
is cold without a restart.

    python -m benchmarks.kvengine.query_twice --base-url http://localhost:8000/v1
    python -m benchmarks.kvengine.query_twice --context-tokens 1000 4000 16000 --fresh-prefix

The same texts as in "CPU RAM" of LMCache's documentation are measured and printed. Needs ``openai``.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from openai import APIConnectionError, OpenAI

from benchmarks.kvengine.long_text import long_text
from benchmarks.rig.machine import machine

QUESTION = "Summarize the text in 2 sentences."
CHARACTERS = 70_000
"""Length of the context where neither a flag nor the server gives one."""
SAMPLE = 4_000
"""Characters of a first request that measures how many characters a token has."""
OTHER_SEED = 1 << 32
"""Seed of a text that shares no prefix with the measured one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one request."""

    ttft_s: float
    prompt_tokens: int | None


@dataclass(frozen=True, slots=True)
class Pair:
    """The results of the same request sent twice."""

    prompt_tokens: int | None
    cold_s: float
    warm_s: float

    @property
    def speed_up(self) -> float:
        return self.cold_s / self.warm_s


class StreamingClient:
    """Sends prompts to one model and measures its streamed responses."""

    def __init__(self, client: OpenAI, model: str, *, chat: bool, max_tokens: int, temperature: float) -> None:
        self._client = client
        self._model = model
        self._chat = chat
        self._max_tokens = max_tokens
        self._temperature = temperature

    def ask(self, prompt: str, *, show: bool = True) -> Answer:
        """Send ``prompt`` and measure the response. Raises: RuntimeError when the response has no content."""
        options: dict[str, Any] = {
            "model": self._model,
            "max_tokens": self._max_tokens,
            "temperature": self._temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began = time.perf_counter()
        first = tokens = None
        if self._chat:
            pieces = self._client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **options)
        else:
            pieces = self._client.completions.create(prompt=prompt, **options)
        for piece in pieces:
            if piece.usage is not None:
                tokens = piece.usage.prompt_tokens
            content = "".join(content_of(choice) for choice in piece.choices)
            if content and first is None:
                first = time.perf_counter()
            if show:
                print(content, end="", flush=True)
        if show:
            print("\n")
        if first is None:
            raise RuntimeError(
                f"{self._model} has answered without any content; ask for more than {self._max_tokens} tokens"
            )
        return Answer(first - began, tokens)


def content_of(choice: Any) -> str:
    """Return the text of a piece of a response, reasoning included."""
    delta = getattr(choice, "delta", None)
    if delta is None:
        return choice.text or ""
    return delta.content or getattr(delta, "reasoning", None) or getattr(delta, "reasoning_content", None) or ""


def prompt_of(characters: int, *, seed: int, fresh: bool) -> str:
    """Return a prompt of a long text and a question about it."""
    prefix = f"Copy {secrets.token_hex(8)}. " if fresh else ""
    return f"{prefix}{long_text(characters, seed)}\n\n{QUESTION}"


def measured(client: StreamingClient, prompt: str) -> Pair:
    """Send the prompt twice, and print the progress and both times."""
    print("Querying with a cold cache")
    cold = client.ask(prompt)
    print(f"Number of tokens in prompt: {'unknown' if cold.prompt_tokens is None else cold.prompt_tokens}")
    print(f"Cold TTFT: {cold.ttft_s:.3f} seconds")
    print("\nQuerying with a warm cache")
    warm = client.ask(prompt)
    print(f"Warm TTFT: {warm.ttft_s:.3f} seconds")
    pair = Pair(cold.prompt_tokens, cold.ttft_s, warm.ttft_s)
    print(f"\nTTFT Improvement: {pair.cold_s - pair.warm_s:.3f} seconds ({pair.speed_up:.1f}x faster)\n", flush=True)
    return pair


def lengths(
    client: StreamingClient, wanted_tokens: list[int], most_tokens: int | None, answer_tokens: int
) -> list[int]:
    """Return the characters of each context, for the wanted tokens or for as many as the model accepts."""
    if not wanted_tokens and most_tokens is None:
        return [CHARACTERS]
    sample = client.ask(long_text(SAMPLE, OTHER_SEED), show=False)  # also wakes the server up
    if sample.prompt_tokens is None:
        print(
            "the endpoint does not say how many tokens a prompt has, so that contexts are not cut to tokens",
            file=sys.stderr,
        )
        return [CHARACTERS]
    each = SAMPLE / sample.prompt_tokens
    most = None if most_tokens is None else int(0.98 * (most_tokens - answer_tokens)) - 64  # the chat's own words
    chosen = wanted_tokens or [int(min(most or 0, CHARACTERS / each))]
    return [int(each * (tokens if most is None else min(tokens, most))) for tokens in chosen]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", default="http://localhost:8000/v1")
    parser.add_argument("--model", help="default: the first of the endpoint's list")
    parser.add_argument("--completions", action="store_true", help="ask /completions instead of /chat/completions")
    parser.add_argument("--context-tokens", type=int, nargs="+", default=[], help="one or several lengths; default: "
                        f"{CHARACTERS:,} characters, or what the model takes")  # fmt: skip
    parser.add_argument("--max-tokens", type=int, default=64, help="of the answer")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=0, help="of the text")
    parser.add_argument("--fresh-prefix", action="store_true", help="begin the text with words that no server has seen")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON at the end")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    server = OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none"), base_url=args.base_url)
    try:
        models = server.models.list().data
    except APIConnectionError:
        print(f"nobody answers at {args.base_url}; name the endpoint with --base-url", file=sys.stderr)
        return 1
    chosen = next((model for model in models if model.id == args.model), models[0] if models else None)
    name = args.model or (chosen.id if chosen else None)
    if name is None:
        print(f"{args.base_url} lists no model; name one with --model", file=sys.stderr)
        return 1
    client = StreamingClient(
        server, name, chat=not args.completions, max_tokens=args.max_tokens, temperature=args.temperature
    )
    most_tokens = getattr(chosen, "max_model_len", None)  # vLLM's own field
    pairs = []
    for number, characters in enumerate(lengths(client, args.context_tokens, most_tokens, args.max_tokens)):
        pairs.append(measured(client, prompt_of(characters, seed=args.seed + number, fresh=args.fresh_prefix)))
    if len(pairs) > 1:
        print("prompt tokens   cold s   warm s   saved s   times faster")
        for pair in pairs:
            saved = pair.cold_s - pair.warm_s
            tokens = pair.prompt_tokens or 0
            print(f"{tokens:13,} {pair.cold_s:8.3f} {pair.warm_s:8.3f} {saved:9.3f} {pair.speed_up:14.1f}")
    print(machine())
    if args.json:
        print(json.dumps([asdict(pair) | {"speed_up": pair.speed_up} for pair in pairs]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
