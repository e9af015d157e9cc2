"""The decoding part of a batch: sequences that get one token in every step."""

from __future__ import annotations

from epp.lab.engine.job import Sequence


class Decoding:
    """Sequences with one new token per step, touched only when they fill a block or end.

    A sequence's own ``computed`` and ``output`` are those of step ``joined``; both have grown by one a step since.
    Invariant: ``context`` is the sum of the tokens that each of them has computed.
    Owner: one engine.
    """

    def __init__(self, block_tokens: int) -> None:
        self.context = 0
        self.steps = 0
        """Steps completed, of any kind."""
        self._block_tokens = block_tokens
        self._members: dict[Sequence, None] = {}  # in order of joining
        self._full: dict[
            int, list[tuple[Sequence, int]]
        ] = {}  # by step: whose blocks are full then, and its ``joined``
        self._last: dict[
            int, list[tuple[Sequence, int]]
        ] = {}  # by step: whose last token comes then, and its ``joined``

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._members

    def computed(self, sequence: Sequence) -> int:
        """Tokens whose KV a member has."""
        return sequence.computed + self.steps - sequence.joined

    def output(self, sequence: Sequence) -> int:
        """Tokens generated for a member."""
        return sequence.output + self.steps - sequence.joined

    def youngest(self) -> Sequence:
        """The member that joined last."""
        return next(reversed(self._members))

    def join(self, sequence: Sequence) -> None:
        """Take in a sequence that has its first token, and wants more, from the next step on."""
        self._members[sequence] = None
        self.context += sequence.computed
        sequence.joined = self.steps
        last = self.steps + sequence.job.output_tokens - sequence.output
        self._last.setdefault(last, []).append((sequence, self.steps))
        self.grown(sequence)

    def leave(self, sequence: Sequence) -> None:
        """Let a member go, with ``computed`` and ``output`` brought up to date."""
        sequence.computed, sequence.output = self.computed(sequence), self.output(sequence)
        self.context -= sequence.computed
        del self._members[sequence]

    def grown(self, sequence: Sequence) -> None:
        """Note how many blocks a member has now: it is ``full`` again when they are."""
        full_at = self.steps + sequence.blocks * self._block_tokens - self.computed(sequence)
        self._full.setdefault(full_at, []).append((sequence, sequence.joined))

    def quiet_steps(self) -> int:
        """How many steps there are until one of them completes a member, or fills somebody's blocks; at least 1."""
        return min(min(self._last), min(self._full)) - self.steps

    def step(self, count: int = 1) -> None:
        """Give each member ``count`` tokens; at most as many as there are quiet steps."""
        self.steps += count
        self.context += count * len(self._members)

    def completed(self) -> list[Sequence]:
        """The members whose last token came with the last step."""
        return self._still_here(self._last.pop(self.steps, []))

    def full(self) -> list[Sequence]:
        """The members that need another block for the next step, each of them once."""
        return self._still_here(self._full.pop(self.steps, []))

    def _still_here(self, noted: list[tuple[Sequence, int]]) -> list[Sequence]:
        """Of those noted at some time, the ones that have not left since (and joined again, perhaps)."""
        return [sequence for sequence, joined in noted if sequence in self._members and sequence.joined == joined]
