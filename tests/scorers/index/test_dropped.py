"""What is dropped is freed: runs and stretches refer to each other, and the garbage collector does not track them."""

from __future__ import annotations

import subprocess
import sys

import pytest

PRELUDE = """
import gc, sys
from random import Random
from scorers.base import Candidate, Prompt, Request, Slot
from scorers.index.flow_share import FlowRecency
from scorers.index.identity import DIGEST_BYTES
from scorers.index.index import PrefixIndex
from scorers.precise.index import PreciseIndex
from scorers.prefix.parameters import ApproxPrefixParameters
from scorers.prefix.producer import ApproxPrefixProducer
from scorers.prefix.cache import PrefixCache
from scorers.precise.speculation import Speculations

ENDPOINTS, PROMPTS, BLOCKS = 4, 500, 8
random = Random(1)

def filled(index):
    for slot in range(ENDPOINTS):
        index.set_capacity(Slot(slot), 0, 10**6)
    for number in range(PROMPTS):
        beginning = random.randbytes(BLOCKS * 4)
        for slot in range(ENDPOINTS):
            prompt = Prompt(b"m", beginning + random.randbytes(BLOCKS * 4))
            index.record(index.match(prompt), Slot(slot), f"flow {number % 7}")
    return index
"""
CASES = {
    "the whole index": """
def drop_one():
    index = filled(PrefixIndex(1, 1))
    for _ in index.clear():
        pass
    assert index.is_empty and not index.statistics().endpoints
""",
    "the whole index, with bounded flows": """
def drop_one():
    for _ in filled(PrefixIndex(1, 1, None, [0.5])).clear():
        pass
""",
    "its endpoints, one by one": """
def drop_one():
    index = filled(PrefixIndex(1, 1))
    for slot in range(ENDPOINTS):
        index.remove_endpoint(Slot(slot))
""",
    "its endpoints, with bounded flows": """
def drop_one():
    index = filled(PrefixIndex(1, 1, None, [0.5]))
    for slot in range(ENDPOINTS):
        index.remove_endpoint(Slot(slot))
""",
    "a prefix cache with requests in flight": """
def drop_one():
    producer = ApproxPrefixProducer(ApproxPrefixParameters(), "gpu")
    cache = PrefixCache([producer], block_tokens=1)
    endpoint = Candidate(Slot(0), "10.0.0.1:8000", gpu_blocks=10**6, block_tokens=1)
    cache.endpoint_added(endpoint)
    for number in range(ENDPOINTS * PROMPTS):
        asked = Request(id="r", model="m", target_model="m", prompts=(Prompt(b"m", random.randbytes(BLOCKS * 4)),))
        asked.pick_id = number
        cache.cached(producer, asked)
        cache.picked(asked, endpoint)
    for _ in cache.clear():
        pass
""",
    "an index that engines report to": """
def drop_one():
    index = PreciseIndex()
    for number in range(1, ENDPOINTS * PROMPTS, 2):
        index.add(number, 0, 16, random.randbytes(BLOCKS * DIGEST_BYTES))
        index.add(number + 1, number, 16, random.randbytes(BLOCKS * DIGEST_BYTES))
        index.hold(number, 3, BLOCKS)
    for _ in index.clear(bytes(32)):
        pass
""",
    "picks that no engine has reported yet": """
def drop_one():
    picks = Speculations(60.0)
    for number in range(ENDPOINTS * PROMPTS):
        picks.add(Prompt(b"m", random.randbytes(BLOCKS * 64)), Slot(0), 16, 0.0)
    picks.forget(Slot(0))
""",
}
MEASURE = """
drop_one()  # what is made once stays
gc.collect()
before = sys.getallocatedblocks()
for _ in range(3):
    drop_one()
gc.collect()
print(sys.getallocatedblocks() - before)
"""


@pytest.mark.parametrize("case", CASES)
def test_of_what_is_dropped_nothing_stays_in_memory(case: str) -> None:
    """Each of the three rounds makes thousands of runs."""
    code = PRELUDE + CASES[case] + MEASURE
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert not done.returncode, done.stderr
    assert int(done.stdout) < 500
