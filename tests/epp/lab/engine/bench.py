"""An engine small enough to compute by hand, and a test bench that drives it in virtual time."""

from dataclasses import replace
from typing import Any

from epp.lab.engine.engine import Engine
from epp.lab.engine.job import Finished, Job, Started
from epp.lab.engine.preset import Preset, Timing

TINY = Preset(
    name="tiny",
    model="m",
    timing=Timing(overhead_s=0.25, weights_s=1.0, token_s=0.125, prefill_pair_s=0.0, decode_context_s=0.0),
    gpu_blocks=16,
    cpu_blocks=8,
    kv_bytes_per_token=1,
    load_bytes_per_s=16.0,
    store_bytes_per_s=1e9,
    block_tokens=4,
    max_num_seqs=8,
    max_batched_tokens=16,
    max_model_len=64,
)
"""Round binary numbers, so that expected times are exact."""


def tiny(**changes: Any) -> Preset:
    """Return ``TINY`` with some values changed."""
    return replace(TINY, **changes)


def job(name: str, prefix: str, prompt_tokens: int, output_tokens: int = 1, *, shared_blocks: int | None = None) -> Job:
    """Return a job that shares its first ``shared_blocks`` blocks (all by default) with other jobs of this prefix."""
    blocks = prompt_tokens // TINY.block_tokens
    shared = blocks if shared_blocks is None else shared_blocks
    keys = tuple((prefix, n) if n < shared else (name, n) for n in range(blocks))
    return Job(name, keys, prompt_tokens, output_tokens)


class Bench:
    """An engine whose events are recorded by job; every move checks the memory invariants."""

    def __init__(self, preset: Preset) -> None:
        self.engine = Engine(preset)
        self.started: dict[str, Started] = {}
        self.finished: dict[str, Finished] = {}

    def submit(self, job: Job, at: float = 0.0) -> None:
        self.until(at)
        self.engine.submit(job, at)
        self.check()

    def abort(self, name: str, at: float) -> bool:
        self.until(at)
        known = self.engine.abort(name, at)
        self.check()
        return known

    def until(self, at: float) -> None:
        while (next_at := self.engine.next_at()) is not None and next_at <= at:
            for event in self.engine.advance(next_at):
                kind = self.started if isinstance(event, Started) else self.finished
                kind[event.job.id] = event  # type: ignore[assignment]
            self.check()
        if at < float("inf"):
            assert self.engine.advance(at) == []

    def run(self) -> None:
        """Run until nothing is under way."""
        self.until(float("inf"))

    def serve(self, job: Job, at: float = 0.0) -> Started:
        """Submit a job and run until it has ended."""
        self.submit(job, at)
        self.run()
        return self.started[job.id]

    def ttft(self, name: str) -> float:
        event = self.started[name]
        return event.at - event.submitted_at

    def check(self) -> None:
        self.engine.gpu.check()
        self.engine.cpu.check()
