"""The time to first token at one endpoint, by parts, with the load-or-recompute cut.

    fixed + decode + max(queue, load) + prefill

A request that is placed delays others, and choices that mind their own time alone make all of them slower: so a price
has the others' delay in it as well. While a prompt is computed the running requests get no tokens; what is computed
takes the place of something that is cached; and the memory that it takes is what others wait for.

What is loaded is a prefix: first what the CPU tier holds beyond the GPU, then what storage holds beyond that. All of
it goes over the lane from host memory to the GPU; what comes from storage takes that tier's lane as well, at the same
time.

Each token loaded saves its computation, and the later it comes in the prompt the more. So between two cuts at which
another part begins to decide how long it takes (the queue, one lane, the other), the sum is concave, and its minimum is
at one of those cuts. A load that is slower than computing comes out as a cut where it begins: it is worth nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from scorers.cost.constants import Constants


class Holding(NamedTuple):
    """What an endpoint holds of one request. Units: tokens, contiguous from the start of the prompt."""

    gpu: int = 0
    cpu: int = 0
    storage: int = 0


NOTHING = Holding()


class Ahead(NamedTuple):
    """What has to go before, at one endpoint. Units: seconds."""

    queue_s: float = 0.0
    """Prefill of others, or until there is memory."""
    cpu_s: float = 0.0
    """Loads of others on the lane from CPU memory."""
    storage_s: float = 0.0


CLEAR = Ahead()


class Crowd(NamedTuple):
    """Whom a request meets at an endpoint, and delays."""

    held_up: float = 0.0
    """What a second of prefill costs others: running requests get no token meanwhile, and what is computed displaces
    what is cached."""
    memory_token_s: float = 0.0
    """What a token of GPU memory costs those who wait for some; 0 where there is plenty."""
    in_use: float = 0.0
    """The share of GPU memory that running requests use. Of a prefix that the GPU holds it is the chance that one of
    them uses it, too, and then it takes no memory."""

    def others_s(self, prefill_s: float, tokens: float) -> float:
        """The delay of all of them together, by a request that computes so long and takes so much memory."""
        return prefill_s * self.held_up + tokens * self.memory_token_s


ALONE = Crowd()


class Estimate(NamedTuple):
    """Parts of the time to first token. Units: seconds, tokens."""

    total_s: float
    fixed_s: float
    decode_s: float
    queue_s: float
    load_s: float
    """Goes on while the request queues: only what is longer than ``queue_s`` counts."""
    prefill_s: float
    gpu_tokens: int
    """Found on the GPU."""
    cpu_tokens: int
    """Loaded from CPU memory; 0 where computing them is faster."""
    storage_tokens: int
    computed_tokens: int
    others_s: float
    """What it costs the requests that are there, and no part of the time to first token."""

    @property
    def price_s(self) -> float:
        """What a choice goes by."""
        return self.total_s + self.others_s


def estimate(
    constants: Constants,
    prompt_tokens: int,
    holding: Holding = NOTHING,
    ahead: Ahead = CLEAR,
    running: int = 0,
    chunk_tokens: int = 1,
    crowd: Crowd = ALONE,
) -> Estimate:
    """Of a prompt of at least one token. Loads end at multiples of ``chunk_tokens``."""
    most = prompt_tokens - 1  # one token is always computed
    queue_s = ahead.queue_s
    gpu = held = min(holding.gpu, most)
    cpu = max(gpu, min(holding.cpu, most) // chunk_tokens * chunk_tokens)
    storage = max(cpu, min(holding.storage, most) // chunk_tokens * chunk_tokens)
    load_s = 0.0
    best_s = queue_s + constants.prefill_s(prompt_tokens, gpu)
    if storage > gpu:
        for cut in _cuts(constants, ahead, gpu, cpu, storage, chunk_tokens):
            took_s = _load_s(constants, ahead, cut - gpu, cut - cpu)
            total_s = (took_s if took_s > queue_s else queue_s) + constants.prefill_s(prompt_tokens, cut)
            if total_s < best_s:
                best_s, held, load_s = total_s, cut, took_s
    decode_s = running * constants.decode_s
    prefill_s = constants.prefill_s(prompt_tokens, held)
    return Estimate(
        constants.fixed_s + decode_s + best_s,
        constants.fixed_s,
        decode_s,
        queue_s,
        load_s,
        prefill_s,
        gpu,
        min(held, cpu) - gpu,
        max(0, held - cpu),
        prompt_tokens - held,
        crowd.others_s(prefill_s, prompt_tokens - gpu * crowd.in_use),
    )


def _load_s(constants: Constants, ahead: Ahead, tokens: int, from_storage: int) -> float:
    """``tokens`` to the GPU, of which ``from_storage`` come from there."""
    cpu, storage = constants.cpu, constants.storage
    to_gpu_s = ahead.cpu_s + cpu.fixed_s + tokens * cpu.token_s
    if from_storage <= 0:
        return to_gpu_s
    return max(to_gpu_s, ahead.storage_s + storage.fixed_s + from_storage * storage.token_s)


def _cuts(constants: Constants, ahead: Ahead, gpu: int, cpu: int, storage: int, chunk_tokens: int) -> Iterator[int]:
    """Where a load of tokens ``gpu`` to ``storage`` may best end."""
    lane = constants.cpu
    to_gpu_s = ahead.cpu_s + lane.fixed_s
    breaks = [gpu + (ahead.queue_s - to_gpu_s) / lane.token_s]  # until here the queue hides the lane
    yield storage
    if storage > cpu:
        if cpu > gpu:
            yield cpu
        slow = constants.storage
        from_storage_s = ahead.storage_s + slow.fixed_s
        breaks.append(cpu + (ahead.queue_s - from_storage_s) / slow.token_s)
        if slow.token_s != lane.token_s:  # where both lanes take as long
            lead_s = to_gpu_s + (cpu - gpu) * lane.token_s - from_storage_s
            breaks.append(cpu + lead_s / (slow.token_s - lane.token_s))
    for at in breaks:
        if gpu < at < storage:
            cut = int(at) // chunk_tokens * chunk_tokens
            if cut > gpu:
                yield cut
            if cut + chunk_tokens < storage:
                yield cut + chunk_tokens
