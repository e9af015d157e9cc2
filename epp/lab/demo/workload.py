"""The prompts of the demo: groups of questions that share a long system prompt, in a shuffled order fixed by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

TOKEN_BYTES = 4  # of English text; good enough to size a prompt

WORDS = """
cache block prompt token tier memory engine request answer prefix layer batch weight router page lane copy store
load evict hold share guess learn count score pick send wait start fast slow long short warm cold full empty
""".split()  # noqa: SIM905 - a list of quoted words reads worse


@dataclass(frozen=True, slots=True)
class Prompt:
    """One chat request of the workload."""

    group: int
    system: str
    question: str
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests of a run, and how many are concurrent. Units: tokens."""

    groups: int = 40
    prompts_per_group: int = 10
    system_tokens: int = 3000
    question_tokens: int = 26
    output_tokens: int = 12
    concurrency: int = 16
    seed: int = 7

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return self.groups * self.prompts_per_group

    @property
    def shared_tokens(self) -> int:
        """Tokens that all system prompts together take in a cache."""
        return self.groups * self.system_tokens

    def quick(self) -> Workload:
        """Return a third of the requests, over as many groups."""
        return replace(self, prompts_per_group=max(2, self.prompts_per_group // 3))

    def sized(self, gpu_tokens: int, max_model_len: int) -> Workload:
        """Return a workload whose shared tokens are twice ``gpu_tokens``, the capacity of all GPU caches (0: unknown).

        Prompts get longer first; there are more groups once a prompt takes two thirds of the context.
        """
        shared = 2 * gpu_tokens or self.shared_tokens
        system = max(64, min(-(-shared // self.groups), max_model_len * 2 // 3))
        return replace(self, system_tokens=system, groups=max(self.groups, -(-shared // system)))

    def prompts(self, run: str) -> list[Prompt]:
        """Return all requests in order; runs differ only in their first words, so that none profits from another."""
        chance = random.Random(self.seed)
        systems = [f"Run {run}. " + text(chance, self.system_tokens) for _ in range(self.groups)]
        questions = [
            Prompt(group, systems[group], text(chance, self.question_tokens), self.output_tokens)
            for group in range(self.groups)
            for _ in range(self.prompts_per_group)
        ]
        chance.shuffle(questions)
        return questions


def text(chance: random.Random, tokens: int) -> str:
    """Return words with the length of ``tokens`` tokens."""
    size = tokens * TOKEN_BYTES
    words = chance.choices(WORDS, k=size // 4)
    return " ".join(words)[:size]
