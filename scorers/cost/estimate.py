"""The time to first token at one endpoint, by parts, and how much of a prompt to load rather than recompute.

    fixed + decode + max(queue, load) + prefill

A request delays other requests at its endpoint, and if each choice considered only its own time, all requests would
become slower. So a price includes the others' delay. While a prompt is computed the running requests get no tokens;
what is computed displaces something that is cached; and other requests wait for the memory that it takes.

What is loaded is a prefix: first what the CPU tier holds beyond the GPU, then what storage holds beyond that. All of it
goes over the lane from host memory to the GPU; what comes from storage takes that tier's lane as well, at the same
time.

Each token loaded saves its computation, and the later it comes in the prompt the more it saves. So between two cuts at
which another part begins to dominate (the queue, one lane, the other), the sum is concave, and its minimum is at one of
those cuts. A load that is slower than computing results in a cut where the load would begin: nothing is loaded.
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
    """The work ahead of a request at one endpoint. Units: seconds."""

    queue_s: float = 0.0
    """Time for other requests' prefill, or until memory is free."""
    cpu_s: float = 0.0
    """Time for other requests' loads on the lane from CPU memory."""
    storage_s: float = 0.0


CLEAR = Ahead()


class Crowd(NamedTuple):
    """The requests that a new request meets at an endpoint, and how much it delays them."""

    held_up: float = 0.0
    """What a second of prefill costs the others: running requests get no token meanwhile, and what is computed
    displaces what is cached. Units: seconds per second."""
    memory_token_s: float = 0.0
    """What a token of GPU memory costs the requests that wait for memory; 0 if there is plenty. Units: seconds per
    token."""
    in_use: float = 0.0
    """The share of GPU memory that running requests use. For a prefix that the GPU holds, this is the probability that
    one of them uses the prefix, too, so that it takes no additional memory."""

    def others_s(self, prefill_s: float, tokens: float) -> float:
        """Return the total delay of the others, by a request with that much prefill and memory."""
        return prefill_s * self.held_up + tokens * self.memory_token_s


ALONE = Crowd()


class Estimate(NamedTuple):
    """The parts of the time to first token. Units: seconds, tokens."""

    total_s: float
    fixed_s: float
    decode_s: float
    queue_s: float
    load_s: float
    """Loading proceeds while the request queues: only what exceeds ``queue_s`` adds to the total."""
    prefill_s: float
    gpu_tokens: int
    """Tokens found on the GPU."""
    cpu_tokens: int
    """Tokens loaded from CPU memory; 0 if computing them is faster."""
    storage_tokens: int
    computed_tokens: int
    others_s: float
    """The delay of the requests that are already there; not a part of the time to first token."""

    @property
    def price_s(self) -> float:
        """The number that a choice minimizes."""
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
    """Estimate the time for a prompt of at least one token. Loads end at multiples of ``chunk_tokens``."""
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
    """Return the time to load ``tokens`` to the GPU, of which the last ``from_storage`` come from storage."""
    cpu, storage = constants.cpu, constants.storage
    to_gpu_s = ahead.cpu_s + cpu.fixed_s + tokens * cpu.token_s
    if from_storage <= 0:
        return to_gpu_s
    return max(to_gpu_s, ahead.storage_s + storage.fixed_s + from_storage * storage.token_s)


def _cuts(constants: Constants, ahead: Ahead, gpu: int, cpu: int, storage: int, chunk_tokens: int) -> Iterator[int]:
    """Yield the candidates for the best end of a load of tokens ``gpu`` to ``storage``."""
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
        if slow.token_s != lane.token_s:  # where both lanes take the same time
            lead_s = to_gpu_s + (cpu - gpu) * lane.token_s - from_storage_s
            breaks.append(cpu + lead_s / (slow.token_s - lane.token_s))
    for at in breaks:
        if gpu < at < storage:
            cut = int(at) // chunk_tokens * chunk_tokens
            if cut > gpu:
                yield cut
            if cut + chunk_tokens < storage:
                yield cut + chunk_tokens
