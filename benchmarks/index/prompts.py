"""The two kinds of prompts that the benchmarks of decisions and of the index use."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from scorers.base import Prompt

QUESTION_BYTES = 4 * 256


def new(tokens: int) -> Iterator[Prompt]:
    """Prompts that share nothing."""
    random = Random(1)
    while True:
        yield Prompt(b"m", random.randbytes(4 * tokens))


def shared(tokens: int) -> Iterator[Prompt]:
    """One long beginning, and a question of 256 tokens that is new in each prompt."""
    random = Random(1)
    system = random.randbytes(4 * tokens)
    while True:
        yield Prompt(b"m", system + random.randbytes(QUESTION_BYTES))


WORKLOADS = {"new": new, "shared": shared}
