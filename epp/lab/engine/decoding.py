"""The decoding part of a batch: sequences that get one token in every step."""

from __future__ import annotations

from epp.lab.engine.job import Sequence


class Decoding:
    """Sequences with one new token per step, touched only when they fill a block or end.

    While a sequence is a member, its own ``computed`` and ``output`` are those of step ``joined``; the true values have
    grown by one with each step since.
    Invariant: ``context`` is the sum of the tokens that each member has computed.
    Owner: one engine.
    """

    def __init__(self, block_tokens: int) -> None:
        self.context = 0
        self.steps = 0
        """Completed steps of any kind."""
        self._block_tokens = block_tokens
        self._members: dict[Sequence, None] = {}  # in the order of joining
        self._full: dict[
            int, list[tuple[Sequence, int]]
        ] = {}  # by step: sequences whose blocks are full then, with their ``joined``
        self._last: dict[
            int, list[tuple[Sequence, int]]
        ] = {}  # by step: sequences whose last token comes then, with their ``joined``

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._members

    def computed(self, sequence: Sequence) -> int:
        """Return the number of tokens of a member whose KV is computed."""
        return sequence.computed + self.steps - sequence.joined

    def output(self, sequence: Sequence) -> int:
        """Return the number of tokens generated for a member."""
        return sequence.output + self.steps - sequence.joined

    def youngest(self) -> Sequence:
        """Return the member that joined last."""
        return next(reversed(self._members))

    def join(self, sequence: Sequence) -> None:
        """Add a sequence that has its first token and needs more; it takes part from the next step on."""
        self._members[sequence] = None
        self.context += sequence.computed
        sequence.joined = self.steps
        last = self.steps + sequence.job.output_tokens - sequence.output
        self._last.setdefault(last, []).append((sequence, self.steps))
        self.grown(sequence)

    def leave(self, sequence: Sequence) -> None:
        """Remove a member, with its ``computed`` and ``output`` brought up to date."""
        sequence.computed, sequence.output = self.computed(sequence), self.output(sequence)
        self.context -= sequence.computed
        del self._members[sequence]

    def grown(self, sequence: Sequence) -> None:
        """Record at which step the blocks that a member has now will be full."""
        full_at = self.steps + sequence.blocks * self._block_tokens - self.computed(sequence)
        self._full.setdefault(full_at, []).append((sequence, sequence.joined))

    def quiet_steps(self) -> int:
        """Return the number of steps until one completes a member or fills a member's blocks; at least 1."""
        return min(min(self._last), min(self._full)) - self.steps

    def step(self, count: int = 1) -> None:
        """Give each member ``count`` tokens; ``count`` is at most ``quiet_steps``."""
        self.steps += count
        self.context += count * len(self._members)

    def completed(self) -> list[Sequence]:
        """Return the members whose last token came with the last step."""
        return self._still_here(self._last.pop(self.steps, []))

    def full(self) -> list[Sequence]:
        """Return the members that need another block for the next step, each once."""
        return self._still_here(self._full.pop(self.steps, []))

    def _still_here(self, noted: list[tuple[Sequence, int]]) -> list[Sequence]:
        """Return those of ``noted`` that are still members and have not left and rejoined since."""
        return [sequence for sequence, joined in noted if sequence in self._members and sequence.joined == joined]
