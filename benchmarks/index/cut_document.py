"""What does a document cost after it was requested at very many lengths?

A decision is the match of the whole document in two tiers and its record. Every endpoint holds the document of 131,072
tokens. *Before* is a decision then. *Cut* is a decision after 2,047 requests, each to the next endpoint, that end at
each of the document's blocks, in random order. *Used again* is a decision once the whole was sent to every endpoint
again. *Own length* is a decision in another index, in which each endpoint holds a length of its own of the document.
The ratios are relative to *before*, in the same run.
Run: ``python -m benchmarks.index.cut_document``.
"""

from __future__ import annotations

import platform
import statistics
import time
from random import Random

from scorers.base import Prompt, Slot
from scorers.index.index import BLOCK_TOKENS, BYTES_PER_TOKEN, PrefixIndex

TOKENS = 131_072
BLOCKS = TOKENS // BLOCK_TOKENS
ENDPOINTS = (10, 100, 1000)
DECISIONS = 101


class Document:
    """An index whose endpoints have room for two documents (GPU) and four (CPU), and one document."""

    def __init__(self, endpoints: int) -> None:
        self.index, self.random = PrefixIndex(2), Random(1)
        self.data = self.random.randbytes(TOKENS * BYTES_PER_TOKEN)
        self.now = 0.0
        self.slots = [Slot(number) for number in range(endpoints)]
        for slot in self.slots:
            self.index.set_capacity(slot, 0, 2 * TOKENS)
            self.index.set_capacity(slot, 1, 4 * TOKENS)

    def send(self, slot: Slot, blocks: int = BLOCKS) -> tuple[float, int]:
        """Return the milliseconds of a decision that sends the first ``blocks`` to ``slot``, and the runs matched."""
        self.now += 1.0
        prompt = Prompt(b"m", self.data[: blocks * BLOCK_TOKENS * BYTES_PER_TOKEN])
        began = time.thread_time()
        match = self.index.match(prompt)
        runs = len(match.walked.path)
        self.index.record(match, slot, now=self.now)
        return (time.thread_time() - began) * 1000, runs

    def decision(self) -> tuple[float, int]:
        """Return the median of decisions about the whole document at the last endpoint."""
        taken = [self.send(self.slots[-1]) for _ in range(DECISIONS)]
        return statistics.median([ms for ms, _ in taken]), taken[-1][1]


def measure(endpoints: int) -> list[tuple[float, int]]:
    """Return the milliseconds of a decision, and the runs on its path, in the four situations."""
    document = Document(endpoints)
    for slot in document.slots:
        document.send(slot)
    figures = [document.decision()]
    lengths = list(range(1, BLOCKS))
    document.random.shuffle(lengths)
    for number, length in enumerate(lengths):
        document.send(document.slots[number % endpoints], length)
    figures.append(document.decision())
    for slot in document.slots:
        document.send(slot)
    figures.append(document.decision())
    apart = Document(endpoints)
    apart.send(apart.slots[-1])
    for slot, length in zip(apart.slots[:-1], lengths, strict=False):
        apart.send(slot, length)
    return [*figures, apart.decision()]


def main() -> None:
    """Run from the command line."""
    print("CPU ms of a decision about 131,072 tokens, its ratio to the same document uncut, (runs on its path);")
    print(f"{platform.machine()}, Python {platform.python_version()}")
    print(f"{'endpoints':>9} {'before':>18} {'cut':>18} {'used again':>18} {'own length':>18}")
    for endpoints in ENDPOINTS:
        figures = measure(endpoints)
        cells = [f"{ms:.3f} x{ms / figures[0][0]:.2f} ({runs:,})" for ms, runs in figures]
        print(f"{endpoints:9,} " + " ".join([f"{cell:>18}" for cell in cells]))


if __name__ == "__main__":
    main()
