"""One engine has the same events at the same times, in virtual time and in real time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.lab.engine.engine import Engine
from epp.lab.engine.job import Finished, Job, Started
from epp.lab.engine.live import LiveEngine
from epp.lab.engine.preset import Timing
from epp.lab.engine.steps import Steps
from tests.epp.lab.engine.bench import tiny

Event = Started | Finished
ROUGH = Timing(overhead_s=0.013, weights_s=0.07, token_s=0.011, prefill_pair_s=0.0007, decode_context_s=0.0031)
"""Numbers that no float represents exactly."""
ARRIVALS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.3, 0.71, 5.0]), st.sampled_from("pq"), st.integers(1, 18), st.integers(1, 30)),
    max_size=12,
)


def jobs_of(arrivals: Sequence[tuple[float, str, int, int]]) -> list[tuple[float, Job]]:
    at, made = 0.0, []
    for n, (gap, prefix, prompt, output) in enumerate(arrivals):
        at += gap
        made.append((at, Job(str(n), tuple((prefix, b) for b in range(prompt // 4)), prompt, output)))
    return made


def jump(engine: Engine, jobs: Sequence[tuple[float, Job]]) -> list[Event]:
    """Run the engine from event to event."""
    events: list[Event] = []
    for at, job in jobs:
        while (due := engine.next_at()) is not None and due <= at:
            events += engine.advance(due)
        engine.submit(job, at)
    while (due := engine.next_at()) is not None:
        events += engine.advance(due)
    return events


def creep(engine: Engine, jobs: Sequence[tuple[float, Job]], tick_s: float) -> list[Event]:
    """Run the engine with a look at every tick and at every token, as a server does."""
    events: list[Event] = []
    now, left = 0.0, list(jobs)
    while left or engine.next_at() is not None:
        times = [now + tick_s, engine.next_at(), engine.next_token_at(), left[0][0] if left else None]
        now = min(time for time in times if time is not None)
        events += engine.advance(now)
        while left and left[0][0] <= now:
            engine.submit(left.pop(0)[1], now)
    return events


@settings(max_examples=150, deadline=None)
@given(ARRIVALS, st.sampled_from([0.05, 0.37, 11.0]), st.integers(6, 16), st.integers(0, 8))
def test_looking_more_often_changes_nothing(
    arrivals: list[tuple[float, str, int, int]], tick_s: float, gpu: int, cpu: int
) -> None:
    preset = tiny(timing=ROUGH, gpu_blocks=gpu, cpu_blocks=cpu, max_model_len=48 if gpu >= 12 else 24)
    jobs = [(at, job) for at, job in jobs_of(arrivals) if job.prompt_tokens + job.output_tokens <= preset.max_model_len]
    assert creep(Engine(preset), jobs, tick_s) == jump(Engine(preset), jobs)


def test_a_server_in_real_time_and_a_jump_through_its_log_see_the_same() -> None:
    preset = tiny(timing=ROUGH, gpu_blocks=16, max_model_len=48)
    wanted = [job for _, job in jobs_of([(0.0, "pq"[n % 2], 3 + n, 4 + n) for n in range(14)])]
    seen: list[Event] = []

    class RecordingEngine(Engine):
        """An engine that records its events."""

        def advance(self, now: float) -> list[Event]:
            events = super().advance(now)
            seen.extend(events)
            return events

    async def serve() -> None:
        live = LiveEngine(RecordingEngine(preset), speed=40.0)

        async def client(jobs: Sequence[Job], *, streaming: bool) -> None:
            for job in jobs:
                with live.serving([job], streaming=streaming) as answer:
                    while not answer.finished:
                        await answer.changed()

        await asyncio.gather(*(client(wanted[n::3], streaming=n > 0) for n in range(3)))
        live.stop()

    asyncio.run(serve())
    begun = {event.job.id: event.submitted_at for event in seen}
    assert len(begun) == len(wanted)
    replayed = jump(Engine(preset), sorted(((begun[job.id], job) for job in wanted), key=lambda pair: pair[0]))
    assert replayed == seen


@given(st.integers(1, 40), st.integers(0, 1000), st.integers(1, 60))
def test_many_steps_end_when_one_after_the_other_would(decodes: int, context: int, count: int) -> None:
    steps = Steps(ROUGH, 3.0, [], decodes, context, count)
    at = 3.0
    for n in range(1, count + 1):
        at += ROUGH.step_s([], decodes, context + (n - 1) * decodes)
        assert steps.end_of(n) == pytest.approx(at)
        assert steps.ended_by(steps.end_of(n)) == n
        assert steps.ended_by(steps.end_of(n) - 1e-4) == n - 1
    assert steps.ended_by(float("inf")) == count
