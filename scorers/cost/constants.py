"""The time that an endpoint takes for each part of a request, in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import msgspec


class Lane(msgspec.Struct, frozen=True):
    """The time to load KV from one tier to the GPU."""

    fixed_s: float
    """Time per load, whatever its size."""
    token_s: float


class Constants(msgspec.Struct, frozen=True):
    """The constants of one kind of endpoint. The defaults are where learning starts if nothing is configured.

    Source: of the order of Qwen3-32B on two H100 (16,000 to 20,000 prompt tokens/s, KV of 256 KiB per token over PCIe
    5). The constants of storage are a guess: slightly faster than computing, until a load was observed.
    """

    fixed_s: float = 0.02
    """Time for any request: the step under way, scheduling, the first sample."""
    token_s: float = 50e-6
    """Prefill time per prompt token."""
    pair_s: float = 2e-9
    """Prefill attention time per pair of a token and an earlier one."""
    decode_s: float = 1e-3
    """Time that each running request adds to another request's first token."""
    cpu: Lane = Lane(2e-3, 3e-6)
    storage: Lane = Lane(10e-3, 40e-6)
    stay_s: float = 10.0
    """How long a request keeps its GPU blocks once it is computed; a guess."""

    def prefill_s(self, prompt_tokens: int, held_tokens: int) -> float:
        """Return the time to compute the rest of a prompt whose first ``held_tokens`` are cached."""
        pairs = (prompt_tokens + held_tokens) * 0.5
        return (prompt_tokens - held_tokens) * (self.token_s + self.pair_s * pairs)


LEAST = Constants(0.0, 1e-8, 0.0, 0.0, Lane(0.0, 1e-9), Lane(0.0, 1e-9), 0.01)
MOST = Constants(10.0, 0.1, 1e-5, 1.0, Lane(10.0, 0.1), Lane(60.0, 1.0), 3600.0)
"""The widest range of constants: an engine is never assumed faster or slower than this, whatever was observed."""

MOST_REQUESTS = 10_000
"""An engine has no use for more running or queued requests. A larger reported number is priced as this one, and nothing
is learned from it."""


def checked(constants: Constants) -> Constants:
    """Return ``constants`` if all of them are in range.

    Raises: ValueError naming the first number that is out of range, and the range.
    """
    for path, value, least, most in numbers(constants, "", LEAST, MOST):
        if not (isfinite(value) and least <= value <= most):
            raise ValueError(f"{path} is {value:g}; it must be from {least:g} to {most:g} s")
    return constants


def numbers(
    given: Constants | Lane, path: str, least: Constants | Lane, most: Constants | Lane
) -> Iterator[tuple[str, float, float, float]]:
    """Yield each number with its path and its bounds."""
    for name in given.__struct_fields__:
        value, low, high = (getattr(one, name) for one in (given, least, most))
        if isinstance(value, Lane):
            yield from numbers(value, f"{path}{name}.", low, high)
        else:
            yield f"{path}{name}", value, low, high
