"""What does a document cost that was asked for at very many lengths?

Every endpoint holds 131,072 tokens, and 2,047 requests, each to the next endpoint, end at each of its blocks, in random
order. CPU ms of a decision about the whole document (match in two tiers and record), before them; after them; and once
every endpoint has been asked for the whole again. Beside it an index that joins nothing. Run:
``python -m benchmarks.index.cut_document``.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from random import Random

from scorers.base import Prompt, Slot
from scorers.index.index import BLOCK_TOKENS, BYTES_PER_TOKEN, PrefixIndex
from scorers.index.joining import MOST_RUNS

TOKENS = 131_072
ENDPOINTS = (10, 100, 1000)
DECISIONS = 30


def measure(endpoints: int, most_runs: int) -> list[tuple[float, int]]:
    """Milliseconds of a decision, and the runs on its path, at the three times."""
    index, random = PrefixIndex(2, most_runs=most_runs), Random(1)
    document = random.randbytes(TOKENS * BYTES_PER_TOKEN)
    now = 0.0

    def ask(slot: int, blocks: int = TOKENS // BLOCK_TOKENS) -> tuple[float, int]:
        nonlocal now
        now += 1.0
        prompt = Prompt(b"m", document[: blocks * BLOCK_TOKENS * BYTES_PER_TOKEN])
        began = time.thread_time()
        match = index.match(prompt)
        runs = len(match.walked.path)
        index.record(match, Slot(slot), now=now)
        return (time.thread_time() - began) * 1000, runs

    def decisions() -> tuple[float, int]:
        taken = [ask(endpoints - 1) for _ in range(DECISIONS)]
        return statistics.median([ms for ms, _ in taken]), taken[-1][1]

    for slot in range(endpoints):
        index.set_capacity(Slot(slot), 0, 2 * TOKENS)
        index.set_capacity(Slot(slot), 1, 4 * TOKENS)
        ask(slot)
    figures = [decisions()]
    lengths = list(range(1, TOKENS // BLOCK_TOKENS))
    random.shuffle(lengths)
    for number, length in enumerate(lengths):
        ask(number % endpoints, length)
    figures.append(decisions())
    for slot in range(endpoints):
        ask(slot)
    figures.append(decisions())
    return figures


def main() -> None:
    """Run from the command line."""
    print(f"CPU ms (runs on the path); {platform.machine()}, Python {platform.python_version()}")
    print(f"{'endpoints':>9} {'joins':>6} {'before':>15} {'2,047 lengths':>15} {'whole again':>15}")
    for endpoints in ENDPOINTS:
        for name, most_runs in (("no", sys.maxsize), ("yes", MOST_RUNS)):
            cells = [f"{ms:.2f} ({runs:,})" for ms, runs in measure(endpoints, most_runs)]
            print(f"{endpoints:9,} {name:>6} " + " ".join([f"{cell:>15}" for cell in cells]))


if __name__ == "__main__":
    main()
