"""An inference engine as a discrete model: continuous batching, chunked prefill, a paged prefix cache, a CPU tier.

Time is an argument. ``submit`` and ``abort`` happen at some ``now``; ``next_at`` returns when something happens next;
``advance`` lets it happen. The same object serves the HTTP endpoint, which calls it as time passes, and benchmarks,
which jump from event to event. Calls come in the order of their times, and ``advance(now)`` comes before the others at
that ``now``.

The rules are vLLM's (V1 scheduler, chunked prefill, prefix caching, OffloadingConnector), in this order at every step:
decoding sequences get one token each; admitted prompts get what is left of the token budget, oldest first; then waiting
ones are admitted first come, first served, while budget, sequence count and blocks allow. At least one prompt token is
always computed. A decoding sequence that finds no block preempts the youngest, which starts again. Prompt blocks found
in the CPU tier are loaded before the rest is computed, without delaying any step; a sequence whose next block is being
loaded for another waits for it. Prompt blocks are copied to the CPU tier once they are computed (inclusive tiers).

Simplifications: a prompt's blocks are taken all at once; an aborted sequence is gone at once, not at the end of the
step; a block under store may be overwritten without delay.

Steps that only decode are one event until something changes: a member ends or fills a block, a request arrives, or a
load completes. Costs O(prompt blocks) per request and O(prefilling sequences) per event.
"""

from __future__ import annotations

from collections import deque

from epp.lab.engine.cpu import CpuBlocks
from epp.lab.engine.decoding import Decoding
from epp.lab.engine.gpu import GpuBlocks
from epp.lab.engine.job import Finished, Hits, Job, Load, RefusedError, Sequence, Started
from epp.lab.engine.preset import Preset
from epp.lab.engine.steps import PromptTokens, Steps
from epp.lab.engine.tally import Tally
from epp.lab.engine.transfers import Transfers


class Engine:
    """One simulated engine: its queue, its batch, its two caches.

    Invariant: a sequence is in exactly one of waiting, following (a load), loading, prefilling, decoding.
    Owner: one caller; not locked.
    """

    def __init__(self, preset: Preset, gpu: GpuBlocks | None = None, cpu: CpuBlocks | None = None) -> None:
        """``gpu`` and ``cpu`` have the preset's sizes; a caller passes its own to be notified of their changes."""
        self.preset = preset
        self.gpu = gpu or GpuBlocks(preset.gpu_blocks)
        self.cpu = cpu or CpuBlocks(preset.cpu_blocks)
        self.tally = Tally()
        self._sequences: dict[str, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._prefilling: dict[Sequence, None] = {}  # in the order of admission
        self._decoding = Decoding(preset.block_tokens)
        self._transfers = Transfers(preset, self.cpu, self.tally)
        self._steps: Steps | None = None  # the steps under way
        self._events: list[Started | Finished] = []

    @property
    def running(self) -> int:
        """Sequences in the batch: prefilling or decoding."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        """Sequences that are not in the batch: queued, or waiting until their blocks are loaded."""
        return len(self._sequences) - self.running

    def adapters(self) -> tuple[set[str], set[str]]:
        """Return the LoRA adapters of admitted sequences, and those that only queued sequences use."""
        with_adapter = [sequence for sequence in self._sequences.values() if sequence.job.adapter]
        admitted = {sequence.job.adapter for sequence in with_adapter if sequence.admitted_at is not None}
        return admitted, {sequence.job.adapter for sequence in with_adapter} - admitted

    def submit(self, job: Job, now: float) -> None:
        """Queue ``job`` at ``now``. Raises: RefusedError when it can never be served."""
        job.check(self.preset.max_model_len)
        if job.id in self._sequences:
            raise RefusedError(f"request id {job.id!r} is in use")
        self._interrupt(now)
        sequence = Sequence(job, now)
        self._sequences[job.id] = sequence
        self._waiting.append(sequence)
        self._begin_steps(now)

    def abort(self, job_id: str, now: float) -> bool:
        """Drop a job and free its blocks. Returns False if the job is unknown or has ended."""
        sequence = self._sequences.pop(job_id, None)
        if sequence is None:
            return False
        self._interrupt(now)
        sequence.aborted = True
        if sequence in self._decoding:
            self._decoding.leave(sequence)
            self._release(sequence, now)
        elif sequence in self._prefilling:
            del self._prefilling[sequence]
            self._release(sequence, now)
        elif sequence.blocks == 0:
            self._forget_waiting(sequence)
        # Otherwise it is loading: its blocks are the target of a copy, and are freed when the copy is done.
        self._begin_steps(now)
        return True

    def output_tokens(self, job_id: str) -> int:
        """Return the tokens generated so far for a job that has not ended."""
        sequence = self._sequences[job_id]
        return self._decoding.output(sequence) if sequence in self._decoding else sequence.output

    def next_at(self) -> float | None:
        """Return when ``advance`` next has something to do; None while nothing is under way."""
        transfer = self._transfers.next_at()
        if self._steps is None:
            return transfer
        ends_at = self._steps.ends_at
        return ends_at if transfer is None or ends_at < transfer else transfer

    def next_token_at(self) -> float | None:
        """Return when the step under way ends, for streaming; None while nothing is computed."""
        return None if self._steps is None else self._steps.end_of(self._steps.done + 1)

    def advance(self, now: float) -> list[Started | Finished]:
        """Process everything up to ``now`` and return what started and finished, in order."""
        while (at := self.next_at()) is not None and at <= now:
            if self._transfers.is_due(at):
                for load in self._transfers.complete(at):
                    self._interrupt(at)
                    self._loaded(load)
            if self._steps is not None and self._steps.ends_at <= at:
                self._end_steps(self._steps)
            self._begin_steps(at)
        self._account(now)
        events, self._events = self._events, []
        return events

    def reset_prefix_cache(self) -> None:
        """Drop every cached GPU block that no sequence uses; the CPU tier keeps its copies."""
        self.gpu.reset()

    def _begin_steps(self, now: float) -> None:
        """Schedule and start the next steps, unless some are under way or there is nothing to compute."""
        if self._steps is not None:
            return
        preempted = self._grow_decoding(now)
        decodes = len(self._decoding)
        prompts = PromptTokens(self.preset.max_batched_tokens - decodes)
        for sequence in self._prefilling:
            if prompts.left <= 0:
                break
            prompts.compute(sequence)
        while prompts.left > 0 and self._waiting and not preempted and self._admit(self._waiting[0], now):
            sequence = self._waiting.popleft()
            if sequence in self._prefilling:
                prompts.compute(sequence)
        if prompts.chunks or decodes:
            count = 1 if prompts.chunks or preempted else self._decoding.quiet_steps()
            self._steps = Steps(self.preset.timing, now, prompts.chunks, decodes, self._decoding.context, count)

    def _account(self, now: float) -> None:
        """Account for the steps that have ended by ``now``, except the last one, which is left to ``advance``."""
        steps = self._steps
        if steps is None or steps.count == 1:
            return
        ended = min(steps.ended_by(now), steps.count - 1) - steps.done
        if ended > 0:
            steps.done += ended
            self._decoding.step(ended)
            self.tally.generated_tokens += ended * len(self._decoding)

    def _interrupt(self, now: float) -> None:
        """Make the step under way the last one before the batch is rebuilt, because something changes at ``now``."""
        if self._steps is not None and self._steps.count > 1:
            self._account(now)
            self._steps.count = self._steps.done + 1

    def _end_steps(self, step: Steps) -> None:
        self._steps = None
        left = step.count - step.done
        self.tally.generated_tokens += left * len(self._decoding)
        self._decoding.step(left)
        ends_at = step.ends_at
        for sequence in self._decoding.completed():
            self._decoding.leave(sequence)
            self._offer(sequence)
            self._end(sequence, ends_at)
        for sequence, n in step.chunks:
            if sequence not in self._prefilling:
                continue  # aborted or preempted in the meantime
            sequence.computed += n
            self._offer(sequence)
            if sequence.computed == sequence.target:
                self._prefilled(sequence, ends_at)

    def _prefilled(self, sequence: Sequence, now: float) -> None:
        """Handle the end of a sequence's prefill, which yields its next output token."""
        del self._prefilling[sequence]
        sequence.output += 1
        self.tally.generated_tokens += 1
        job = sequence.job
        if not sequence.stored:
            sequence.stored = True
            self._transfers.store(job.keys[: job.prompt_tokens // self.preset.block_tokens], now)
        if not sequence.started:
            sequence.started = True
            admitted_at = now if sequence.admitted_at is None else sequence.admitted_at
            self.tally.started(job.prompt_tokens, sequence.hits, now, sequence.submitted_at, admitted_at)
            self._events.append(Started(job, now, sequence.hits, sequence.submitted_at, admitted_at))
        if sequence.output == job.output_tokens:
            self._end(sequence, now)
        else:
            self._decoding.join(sequence)

    def _end(self, sequence: Sequence, now: float) -> None:
        self._release(sequence, now)
        job = sequence.job
        self.cpu.touch(job.keys[: job.prompt_tokens // self.preset.block_tokens], now)
        del self._sequences[job.id]
        self.tally.finished(now - sequence.submitted_at)
        self._events.append(Finished(sequence.job, now, sequence.submitted_at))

    def _grow_decoding(self, now: float) -> bool:
        """Give a block to each decoding sequence that needs one now; True if a sequence was preempted for it."""
        preempted = False
        for sequence in self._decoding.full():
            while sequence in self._decoding and not self.gpu.can_take((), 1):
                self._preempt(now)
                preempted = True
            if sequence in self._decoding:
                self._offer(sequence, self._decoding.computed(sequence))
                self.gpu.take((), 1)
                sequence.private += 1
                self._decoding.grown(sequence)
        return preempted

    def _preempt(self, now: float) -> None:
        """Send the youngest sequence of the batch back to the head of the queue, with nothing computed."""
        if self._prefilling:
            victim, _ = self._prefilling.popitem()
        else:
            victim = self._decoding.youngest()
            self._decoding.leave(victim)
        self._release(victim, now)
        victim.computed = 0
        self._waiting.appendleft(victim)
        self.tally.preemptions += 1

    def _admit(self, sequence: Sequence, now: float) -> bool:
        """Try to admit ``sequence``: to prefill, to load, or to wait for another's load. False if it stays queued."""
        preset = self.preset
        if self.running + len(self._transfers.loads) >= preset.max_num_seqs:
            return False
        keys = sequence.job.keys[: (sequence.target - 1) // preset.block_tokens]
        in_gpu = self.gpu.matched(keys)
        if in_gpu < len(keys) and (load := self._transfers.loading(keys[in_gpu])):
            load.followers.append(sequence)
            return True
        blocks = -(-sequence.target // preset.block_tokens) - in_gpu
        hits = keys[:in_gpu]
        if not self.gpu.can_take(hits, blocks):
            return False
        in_cpu = self.cpu.matched(keys, in_gpu)
        self.gpu.take(hits, blocks)
        self.cpu.touch(keys[: in_gpu + in_cpu], now)
        sequence.named, sequence.private, sequence.offered = list(hits), blocks, in_gpu
        sequence.computed = in_gpu * preset.block_tokens
        if sequence.admitted_at is None:
            sequence.admitted_at = now
            sequence.hits = Hits(in_gpu * preset.block_tokens, in_cpu * preset.block_tokens)
        if in_cpu:
            self._transfers.load(sequence, list(keys[in_gpu : in_gpu + in_cpu]), now)
        else:
            self._prefilling[sequence] = None
        return True

    def _offer(self, sequence: Sequence, computed: int | None = None) -> None:
        """Name the blocks that have become full, so that other sequences can hit them."""
        full = (sequence.computed if computed is None else computed) // self.preset.block_tokens
        if full > sequence.offered:
            named = self.gpu.name(sequence.job.keys[sequence.offered : full])
            sequence.named += named
            sequence.private -= len(named)
            sequence.offered = full

    def _release(self, sequence: Sequence, now: float) -> None:
        self.gpu.release(sequence.named, sequence.private, now)
        sequence.named, sequence.private, sequence.offered = [], 0, 0

    def _forget_waiting(self, sequence: Sequence) -> None:
        for queue in (self._waiting, *(load.followers for load in self._transfers.loads)):
            if sequence in queue:
                queue.remove(sequence)

    def _loaded(self, load: Load) -> None:
        self._waiting.extendleft(reversed(load.followers))
        sequence = load.sequence
        sequence.computed += len(load.keys) * self.preset.block_tokens
        self._offer(sequence)
        if sequence.aborted:
            self._release(sequence, load.done_at)
        else:
            self._prefilling[sequence] = None
