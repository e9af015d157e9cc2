"""A stream recorded from the real vLLM with kvengine (``tests/vllm/recording.py``): the index predicts for each prompt
what the engine then found in its tiers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from epp.kvevents.follower.decoding import decode
from tests.epp.kvevents.fleet import Fleet

RECORDING = Path(__file__).parents[2] / "data" / "kv-events-vllm.msgpack"
BLOCK_TOKENS, CHUNK = 32, 64


class Found(msgspec.Struct):
    batches: int
    prompt: list[int]
    gpu: int
    cpu: int


class Recording(msgspec.Struct):
    batches: list[bytes]
    found: list[Found]
    salted: list[list[int]]


def usable(held: int, prompt: list[int], block: int) -> int:
    """Leave out the last token, which an engine always computes."""
    return min(held, (len(prompt) - 1) // block * block)


def test_what_the_index_says_is_what_the_engine_found() -> None:
    recording = msgspec.msgpack.decode(RECORDING.read_bytes(), type=Recording)
    fleet, applied = Fleet(), 0
    sums = [0, 0]
    for found in recording.found:
        for payload in recording.batches[applied : found.batches]:
            batch = decode(payload)
            fleet.say(0, *batch.events, rank=batch.rank)
        applied = found.batches
        gpu, cpu, _ = fleet.held(found.prompt)
        in_gpu = usable(gpu.get(0, 0), found.prompt, BLOCK_TOKENS)
        in_cpu = usable(cpu.get(0, 0), found.prompt, CHUNK)
        assert (found.gpu, found.cpu) == (in_gpu, max(0, in_cpu - in_gpu))
        sums = [sums[0] + found.gpu, sums[1] + found.cpu]
    assert min(sums) > 1000, "both tiers were found to hold something"
    assert fleet.tally.removed > 50, "and both forgot something"
    assert fleet.held(recording.salted[0])[0].get(0, 0) == 0, "a salted prompt is another one"
    assert not fleet.tally.malformed
    fleet.check()
