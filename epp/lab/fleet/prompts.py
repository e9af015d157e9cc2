"""Prompts made of parts: bytes for the picker, names of blocks for the engines, each computed only once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from epp.lab.engine.tokens import TOKEN_BYTES

_BLOCKS = 1 << 20
"""More than the number of blocks in any prompt."""


class PromptPart(NamedTuple):
    """A stretch of a prompt, whose content is only a number. Parts with equal numbers start with equal tokens."""

    content: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a workload."""

    parts: tuple[PromptPart, ...]
    output_tokens: int
    answer: int | None = None
    """The content of the answer, where a later prompt repeats it."""
    session: str = ""
    """The session that the turn belongs to; empty for a single request."""
    stage: int = 0

    @property
    def prompt_tokens(self) -> int:
        """The length of the prompt in tokens."""
        return sum([part.tokens for part in self.parts])


@dataclass(slots=True)
class _Place:
    """A node of the tree of prompts: a sequence of parts that some prompt starts with."""

    number: int
    tokens: int
    keys: tuple[int, ...]
    """The names of all blocks up to here."""
    below: dict[PromptPart, _Place] = field(default_factory=dict)


class Prompts:
    """Converts requests to the form that each side sees. Units: ``block_tokens`` are the engine's.

    A block's name is (the node in which its last token lies, its position): equal for equal beginnings only, and an
    integer, which is cheap to hash. Invariant: equal parts in equal order are one node.
    """

    def __init__(self, block_tokens: int, seed: int = 0) -> None:
        self._block_tokens = block_tokens
        self._salt = seed << 40
        self._root = _Place(0, 0, ())
        self._places = 1

    def keys(self, ask: Ask) -> tuple[int, ...]:
        """Return the names of the full blocks of the prompt and, where it may be repeated, of the answer."""
        place = self._root
        for part in ask.parts:
            place = place.below.get(part) or self._add(place, part)
        if ask.answer is not None:
            answer = PromptPart(ask.answer, ask.output_tokens)
            place = place.below.get(answer) or self._add(place, answer)
        return place.keys

    def data(self, ask: Ask) -> bytes:
        """Return the prompt's bytes, four to a token."""
        return b"".join([self._bytes(part) for part in ask.parts])

    def _bytes(self, part: PromptPart) -> bytes:
        size = part.tokens * TOKEN_BYTES
        pattern = (self._salt + part.content + 1).to_bytes(16, "little")
        whole, rest = divmod(size, len(pattern))
        return pattern * whole + pattern[:rest] if rest else pattern * whole

    def _add(self, parent: _Place, part: PromptPart) -> _Place:
        number, tokens = self._places, parent.tokens + part.tokens
        self._places += 1
        begin, end = len(parent.keys), tokens // self._block_tokens
        keys = parent.keys + tuple(range(number * _BLOCKS + begin, number * _BLOCKS + end))
        place = parent.below[part] = _Place(number, tokens, keys)
        return place
