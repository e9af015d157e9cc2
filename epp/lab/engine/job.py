"""The jobs that an engine computes, and the events that it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from epp.lab.engine.tokens import BlockKey


@dataclass(frozen=True, slots=True)
class Job:
    """One sequence to serve.

    ``keys`` name its full blocks from the first on: those of the prompt and, where the caller has them, those of the
    answer too, so that a follow-up can hit them.
    """

    id: str
    keys: tuple[BlockKey, ...]
    prompt_tokens: int
    output_tokens: int
    adapter: str = ""
    """The LoRA adapter that the job runs with; empty for none."""

    def check(self, limit: int) -> None:
        """Check the job against a context of ``limit`` tokens. Raises: RefusedError when it can never be served."""
        prompt, output = self.prompt_tokens, self.output_tokens
        if prompt < 1 or output < 1 or prompt + output > limit:
            raise RefusedError(
                f"the prompt has {prompt} tokens and {output} are to be generated: "
                f"both must be at least 1 and their sum at most {limit}, the maximum context length"
            )


class Hits(NamedTuple):
    """Prompt tokens that a sequence did not have to compute, by the tier they were in when it was admitted."""

    gpu: int
    cpu: int


NO_HITS = Hits(0, 0)


class Started(NamedTuple):
    """The event that a job's first token was generated."""

    job: Job
    at: float
    hits: Hits
    submitted_at: float
    admitted_at: float


class Finished(NamedTuple):
    """The event that a job's last token was generated; the engine has dropped the job."""

    job: Job
    at: float
    submitted_at: float


class RefusedError(Exception):
    """Refuses a job that the engine can never serve; the message names the value and the limit."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A job inside the engine. Owner: the engine.

    ``computed`` and ``output`` are current while the sequence is not decoding. While it is, they are the values at step
    ``joined``, and the true ones have grown by one with every step since.
    """

    job: Job
    submitted_at: float
    admitted_at: float | None = None
    hits: Hits = NO_HITS
    computed: int = 0
    """Tokens whose KV is in GPU blocks of this sequence."""
    output: int = 0
    """Tokens generated."""
    joined: int = 0
    named: list[BlockKey] = field(default_factory=list)
    """Its pinned blocks in prefix order."""
    private: int = 0
    """The number of its unnamed blocks."""
    offered: int = 0
    """How many blocks, from the first on, have been offered for naming."""
    started: bool = False
    stored: bool = False
    aborted: bool = False

    @property
    def target(self) -> int:
        """Tokens to compute before the next one can be generated; more than the prompt after a preemption."""
        return self.job.prompt_tokens + self.output

    @property
    def blocks(self) -> int:
        """GPU blocks that the sequence uses."""
        return len(self.named) + self.private


@dataclass(slots=True, eq=False)
class Load:
    """Blocks on their way from the CPU tier to one sequence, and the sequences that wait for the same blocks."""

    sequence: Sequence
    keys: list[BlockKey]
    done_at: float
    followers: list[Sequence] = field(default_factory=list)


class Store(NamedTuple):
    """Blocks on their way to the CPU tier. ``keys`` are the new ones; ``used`` are the whole prompt's."""

    keys: list[BlockKey]
    used: tuple[BlockKey, ...]
    done_at: float
