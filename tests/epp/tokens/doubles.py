"""A token source whose answers a test sends."""

from __future__ import annotations

from epp.tokens.model.answer import Answer, NoTokenIds
from epp.tokens.source import Done, TokenRequest


class SlowJob:
    def __init__(self, source: SlowSource, request: TokenRequest, done: Done) -> None:
        self.source = source
        self.request = request
        self._done: Done | None = done

    def cancel(self) -> None:
        if self in self.source.jobs:
            self.source.jobs.remove(self)
            self.source.cancelled += 1
        self._done = None

    def finish(self, answer: Answer) -> None:
        self.source.jobs.remove(self)
        done, self._done = self._done, None
        assert done is not None
        done(answer)


class SlowSource:
    """``at_once`` is the answer that needs no wait, if any."""

    def __init__(self, at_once: Answer | None = None) -> None:
        self.at_once = at_once
        self.jobs: list[SlowJob] = []
        self.cancelled = 0

    def now(self, request: TokenRequest) -> Answer | None:
        return self.at_once

    def later(self, request: TokenRequest, done: Done) -> SlowJob:
        job = SlowJob(self, request, done)
        self.jobs.append(job)
        return job

    def finish(self, answer: Answer) -> None:
        """Send the answer for the oldest waiting job."""
        self.jobs[0].finish(answer)

    async def close(self) -> None:
        for job in list(self.jobs):
            job.finish(NoTokenIds.CLOSED)
