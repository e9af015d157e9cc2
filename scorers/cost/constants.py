"""What an endpoint takes for each part of a request, in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import msgspec


class Lane(msgspec.Struct, frozen=True):
    """Loading KV from one tier to the GPU."""

    fixed_s: float
    """Per load, whatever its size."""
    token_s: float


class Constants(msgspec.Struct, frozen=True):
    """One kind of endpoint. The defaults are where learning starts that was told nothing.

    Source: of the order of Qwen3-32B on two H100 (16,000 to 20,000 prompt tokens/s, KV of 256 KiB per token over
    PCIe 5); that of storage is a guess: little faster than computing, until it was seen.
    """

    fixed_s: float = 0.02
    """Whatever the request: the step under way, scheduling, the first sample."""
    token_s: float = 50e-6
    """Prefill, per prompt token."""
    pair_s: float = 2e-9
    """Prefill attention, per pair of a token and an earlier one."""
    decode_s: float = 1e-3
    """Each running request adds it to another's first token."""
    cpu: Lane = Lane(2e-3, 3e-6)
    storage: Lane = Lane(10e-3, 40e-6)
    stay_s: float = 10.0
    """How long a request keeps its GPU blocks once it is computed; a guess."""

    def prefill_s(self, prompt_tokens: int, held_tokens: int) -> float:
        """Compute the rest of a prompt whose first ``held_tokens`` are there."""
        pairs = (prompt_tokens + held_tokens) * 0.5
        return (prompt_tokens - held_tokens) * (self.token_s + self.pair_s * pairs)


LEAST = Constants(0.0, 1e-8, 0.0, 0.0, Lane(0.0, 1e-9), Lane(0.0, 1e-9), 0.01)
MOST = Constants(10.0, 0.1, 1e-5, 1.0, Lane(10.0, 0.1), Lane(60.0, 1.0), 3600.0)
"""No engine is faster or slower than these, whatever was seen of it."""

MOST_REQUESTS = 10_000
"""No engine runs or queues more to any purpose: what says so is priced as that many, and nothing is learned of it."""


def checked(constants: Constants) -> Constants:
    """``constants``. Raises: ValueError that names the first number that no engine has, and the range."""
    for path, value, least, most in numbers(constants, "", LEAST, MOST):
        if not (isfinite(value) and least <= value <= most):
            raise ValueError(f"{path} is {value:g}; it must be from {least:g} to {most:g} s")
    return constants


def numbers(
    given: Constants | Lane, path: str, least: Constants | Lane, most: Constants | Lane
) -> Iterator[tuple[str, float, float, float]]:
    """Each number by its path, and its bounds."""
    for name in given.__struct_fields__:
        value, low, high = (getattr(one, name) for one in (given, least, most))
        if isinstance(value, Lane):
            yield from numbers(value, f"{path}{name}.", low, high)
        else:
            yield f"{path}{name}", value, low, high
