"""The token source in use, across changes of the plan: the new source opens before the old one closes."""

from __future__ import annotations

import asyncio

from epp.tokens.plan import Candidates, LocalPlan, RemotePlan, TokenPlan
from epp.tokens.source import TokenSource
from epp.tokens.step import TokenStep


def open_source(plan: TokenPlan, candidates: Candidates) -> TokenSource | None:
    """Return a new source, or None without a backend; ``candidates`` returns the pool's endpoints.

    Must be called, and the source closed, on the event loop.
    """
    if isinstance(plan.backend, LocalPlan):
        from epp.tokens.local import LocalSource

        return LocalSource(plan.loaded, threads=plan.backend.threads, max_bytes=plan.backend.max_bytes)
    if isinstance(plan.backend, RemotePlan):
        from epp.tokens.remote import RemoteSource

        return RemoteSource(plan.backend, candidates)
    return None


class OpenedSource:
    """Opens and closes the sources of a token step. Owner: the event loop."""

    def __init__(self, step: TokenStep, candidates: Candidates) -> None:
        self._step = step
        self._candidates = candidates
        self._plan: TokenPlan | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def use(self, plan: TokenPlan | None) -> None:
        """Tokenize according to ``plan`` from the next request on.

        Requests that still wait for the former source go on without token ids.
        """
        if plan is self._plan:
            return
        before, self._plan = self._step.source, plan
        self._step.source = open_source(plan, self._candidates) if plan is not None else None
        if before is not None:
            task = asyncio.get_running_loop().create_task(before.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Stop tokenizing, and wait until all sources are closed."""
        self.use(None)
        await asyncio.gather(*self._closing)

    @property
    def source(self) -> TokenSource | None:
        """The token source in use, or None."""
        return self._step.source
