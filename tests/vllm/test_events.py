"""KV events of the real vLLM, read by the picker's decoder: what they say is held is what the engine finds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from epp.kvevents.decoding import Batch, BlockRemoved, BlockStored, decode, hash_of
from tests.vllm.engine import BLOCK_TOKENS
from tests.vllm.recording import CHUNK, record


class Told:
    """Prefixes by medium, taken from events in the simplest way."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str | None, int]] = Counter()
        self.tokens: dict[tuple[int, int], tuple[int, ...]] = {}

    def apply(self, batch: Batch) -> None:
        for event in batch.events:
            if isinstance(event, BlockStored):
                size, before = event.block_size, event.parent_block_hash
                prefix = self.tokens[size, hash_of(before)] if before is not None else ()
                salt = (-1,) if before is None and event.extra_keys and event.extra_keys[0] else ()
                for n, name in enumerate(event.block_hashes):
                    prefix = (*prefix, *salt, *event.token_ids[n * size : (n + 1) * size])
                    salt = ()
                    self.tokens[size, hash_of(name)] = prefix
                    self.counts[event.medium, hash_of(name)] += 1
            elif isinstance(event, BlockRemoved):
                self.counts.subtract((event.medium, hash_of(name)) for name in event.block_hashes)
            else:
                self.counts = Counter({key: n for key, n in self.counts.items() if key[0] != "GPU"})

    def held(self, medium: str, size: int, prompt: list[int]) -> int:
        here = {self.tokens[size, name] for (of, name), n in self.counts.items() if of == medium and n > 0}
        end = 0
        while end + size < len(prompt) and tuple(prompt[: end + size]) in here:
            end += size
        return end


def test_what_events_say_is_held_is_what_the_engine_finds(model: Path, tmp_path: Path) -> None:
    recording = record(model, tmp_path)
    told, applied = Told(), 0
    tiers = [0, 0]
    for found in recording.found:
        for payload in recording.batches[applied : found.batches]:
            told.apply(decode(payload))
        applied = found.batches
        gpu, cpu = told.held("GPU", BLOCK_TOKENS, found.prompt), told.held("CPU", CHUNK, found.prompt)
        assert (found.gpu, found.cpu) == (gpu, max(0, cpu - gpu))
        tiers = [tiers[0] + found.gpu, tiers[1] + found.cpu]
    assert min(tiers) > 0, "both tiers were found to hold something"
    assert told.held("GPU", BLOCK_TOKENS, recording.salted[0]) == 0
