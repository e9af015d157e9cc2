"""The source of a running picker, through changes of its plan: a new one is opened before the old one is closed."""

from __future__ import annotations

import asyncio

from epp.tokens.plan import Candidates, TokenPlan
from epp.tokens.source import TokenSource
from epp.tokens.step import TokenStep


class OpenedSource:
    """Owner: the event loop."""

    def __init__(self, step: TokenStep, candidates: Candidates) -> None:
        self._step = step
        self._candidates = candidates
        self._plan: TokenPlan | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def use(self, plan: TokenPlan | None) -> None:
        """Tokenize as ``plan`` says from the next request on; who waits for the source before goes on without."""
        if plan is self._plan:
            return
        before, self._plan = self._step.source, plan
        self._step.source = plan.open(self._candidates) if plan is not None else None
        if before is not None:
            task = asyncio.get_running_loop().create_task(before.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Tokenize nothing any more, and wait until all is closed."""
        self.use(None)
        await asyncio.gather(*self._closing)

    @property
    def source(self) -> TokenSource | None:
        """The one in use."""
        return self._step.source
