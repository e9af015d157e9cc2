"""How long does one request of many prompts block the picker for other requests?

A completion request with 1,024 prompts of 384 tokens with a common prefix of 256 tokens, parsed and decided as in
``benchmarks.picker.decision``: with an empty index, and once every endpoint holds the prefix. CPU time of this
thread.

Run: ``python -m benchmarks.picker.batch_request [--prompts N]``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from random import Random

from benchmarks.picker.decision import Picker
from epp.decision import Cause, Outcome, RequestHead
from epp.parsers.openai import OpenAIParser
from scorers.base import Slot

ENDPOINTS = (10, 100, 1000)
HEAD = RequestHead({":path": "/v1/completions", "x-request-id": "1"})
ROUNDS = 5


def body(beginning: str, prompts: int, random: Random) -> bytes:
    """Return a request whose prompts share a prefix and end differently."""
    given = [beginning + f"{random.getrandbits(2048):0512x}" for _ in range(prompts)]
    return json.dumps({"model": "m", "prompt": given}).encode()


def measure(endpoints: int, prompts: int) -> tuple[float, float]:
    """Return the milliseconds with an empty index, and with the prefix held by every endpoint."""
    reader, random = OpenAIParser(), Random(1)
    picker = Picker(endpoints, reader=reader)

    def decide(beginning: str) -> float:
        data = body(beginning, prompts, random)
        began = time.thread_time()
        decision = picker.director.decide(HEAD, data)
        took = time.thread_time() - began
        picker.director.picks.ended(decision.pick_id, Outcome(Cause.COMPLETED))
        return took * 1000

    cold = statistics.median([decide(f"{number:01024d}") for number in range(ROUNDS)])
    beginning = "b" * 1024
    first = reader.parse("/v1/completions", body(beginning, 1, random)).prompts[0]
    for slot in range(endpoints):
        picker.index.record(picker.index.match(first), Slot(slot))
    warm = statistics.median([decide(beginning) for _ in range(ROUNDS)])
    return cold, warm


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=1024)
    prompts = parser.parse_args().prompts
    where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"One request of {prompts:,} prompts, CPU ms, median of {ROUNDS}; {where}.")
    print(f"{'endpoints':>9} {'new':>9} {'held everywhere':>16}")
    for endpoints in ENDPOINTS:
        cold, warm = measure(endpoints, prompts)
        print(f"{endpoints:9,} {cold:9.1f} {warm:16.1f}")


if __name__ == "__main__":
    main()
