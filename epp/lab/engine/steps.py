"""What one step computes of prompts; and consecutive steps of one batch, and when each of them ends."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from math import sqrt

from epp.lab.engine.job import Sequence
from epp.lab.engine.preset import Chunk, Timing


@dataclass(slots=True)
class PromptTokens:
    """The prompt tokens that one step computes; ``left`` is what remains of its token budget."""

    left: int
    chunks: list[tuple[Sequence, int]] = field(default_factory=list)

    def compute(self, sequence: Sequence) -> None:
        """Compute as much of the prompt of ``sequence`` in this step as the budget allows."""
        tokens = min(self.left, sequence.target - sequence.computed)
        self.chunks.append((sequence, tokens))
        self.left -= tokens


class Steps:
    """A run of ``count`` equal steps.

    Either one step that computes ``chunks``, or any number of steps that only decode, whose context grows by one token
    per sequence in every step.

    The end of each step follows from the start of the first alone, so a look in between changes nothing.
    Owner: one engine.
    """

    __slots__ = ("_began_at", "_first_s", "_growth_s", "chunks", "count", "done")

    def __init__(
        self,
        timing: Timing,
        began_at: float,
        chunks: Items[tuple[Sequence, int]],
        decodes: int,
        decode_context: int,
        count: int,
    ) -> None:
        self.chunks = chunks
        self.count = count
        self.done = 0
        """Steps that have been accounted for."""
        self._began_at = began_at
        self._first_s = timing.step_s([Chunk(s.computed, n) for s, n in chunks], decodes, decode_context)
        self._growth_s = decodes * timing.decode_context_s

    @property
    def ends_at(self) -> float:
        """When the last step ends."""
        return self.end_of(self.count)

    def end_of(self, n: int) -> float:
        """Return when the ``n``-th step ends, counted from 1."""
        return self._began_at + n * self._first_s + self._growth_s * (n * (n - 1) / 2)

    def ended_by(self, now: float) -> int:
        """Return how many steps have ended by ``now``."""
        if self.count == 1 or now < self.end_of(1):
            return 1 if now >= self.end_of(1) else 0
        if now >= self.ends_at:
            return self.count
        elapsed, half = now - self._began_at, self._growth_s / 2
        linear = self._first_s - half
        guess = elapsed / linear if not half else (sqrt(linear * linear + 4 * half * elapsed) - linear) / (2 * half)
        n = min(self.count, max(1, int(guess)))
        while n < self.count and self.end_of(n + 1) <= now:
            n += 1
        while self.end_of(n) > now:
            n -= 1
        return n
