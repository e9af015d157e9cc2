"""An engine driven by the event loop's clock, and the answers that wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from epp.lab.engine.engine import Engine
from epp.lab.engine.job import Job, Started


@dataclass(slots=True, eq=False)
class JobProgress:
    """The progress of one job of an answer."""

    job: Job
    tokens: int = 0
    started: Started | None = None
    finished: bool = False


class Answer:
    """The parts of one HTTP request. Owner: its handler; the engine's driver only updates and wakes it."""

    def __init__(self, parts: list[JobProgress], *, streaming: bool) -> None:
        self.parts = parts
        self.streaming = streaming
        self._changed = asyncio.Event()

    @property
    def finished(self) -> bool:
        """Whether every part is complete."""
        return all(part.finished for part in self.parts)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts together."""
        return sum(part.job.prompt_tokens for part in self.parts)

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far, in all parts together."""
        return sum(part.tokens for part in self.parts)

    def wake(self) -> None:
        """Let ``changed`` return: at every token when streaming, otherwise at the end."""
        if self.streaming or self.finished:
            self._changed.set()

    async def changed(self) -> None:
        """Wait for a change since the last call."""
        await self._changed.wait()
        self._changed.clear()


class LiveEngine:
    """Runs ``engine`` in real time, ``speed`` engine seconds per second. Owner: the running event loop."""

    def __init__(self, engine: Engine, *, speed: float = 1.0) -> None:
        self.engine = engine
        self._speed = speed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._answers: dict[str, tuple[Answer, JobProgress]] = {}  # by job id, until it ends or is aborted

    def now(self) -> float:
        """Return the current engine time."""
        return self._loop.time() * self._speed

    def unix_s(self, engine_s: float) -> float:
        """Convert engine time to Unix time."""
        return time.time() - (self.now() - engine_s) / self._speed

    @contextmanager
    def serving(self, jobs: Sequence[Job], *, streaming: bool) -> Iterator[Answer]:
        """Submit ``jobs`` as one answer; leaving the context aborts what is unfinished.

        Raises: RefusedError when one of the jobs cannot be served; then none is.
        """
        answer = Answer([JobProgress(job) for job in jobs], streaming=streaming)
        try:
            self._advance()
            for part in answer.parts:
                self.engine.submit(part.job, self.now())
                self._answers[part.job.id] = answer, part
            self._arm()
            yield answer
        finally:
            left = [part.job.id for part in answer.parts if self._answers.pop(part.job.id, None)]
            if left:
                self._advance()
                for job_id in left:
                    self.engine.abort(job_id, self.now())
                self._arm()

    def stop(self) -> None:
        """Cancel the timer, which stops the engine's time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._advance()
        self._arm()

    def _arm(self) -> None:
        """Set the timer for the engine's next event."""
        self.stop()
        times = [self.engine.next_at()]
        if any(answer.streaming for answer, _ in self._answers.values()):
            times.append(self.engine.next_token_at())
        at = min([time for time in times if time is not None], default=None)
        if at is not None:
            self._timer = self._loop.call_at(at / self._speed, self._due)

    def _advance(self) -> None:
        """Bring the engine up to now and update the answers."""
        for event in self.engine.advance(self.now()):
            if (found := self._answers.get(event.job.id)) is None:
                continue
            answer, part = found
            if isinstance(event, Started):
                part.started = event
            else:
                part.finished, part.tokens = True, event.job.output_tokens
                del self._answers[event.job.id]
                answer.wake()
        for answer, part in self._answers.values():
            if answer.streaming and part.started:
                tokens = self.engine.output_tokens(part.job.id)
                if tokens > part.tokens:
                    part.tokens = tokens
                    answer.wake()
