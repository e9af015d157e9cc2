"""Hash states at the ends of some runs, so that a prompt that grows by blocks is not hashed from its start again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from epp.kvevents.follower.run import Run

MOST = 4096
"""Maximum number of hash states, at 640 bytes each."""


class Tips:
    """The hash states after the last block of runs, by run number. The oldest are dropped first. Owner: the runs."""

    def __init__(self) -> None:
        self._tips: OrderedDict[int, tuple[int, Any]] = OrderedDict()

    def take(self, run: Run) -> Any:
        """Return the hash state at the end of ``run``, or None if it is not kept. The caller may change it."""
        tip = self._tips.get(run.number) if run.parent is not None else None
        if tip is None or tip[0] != run.start + run.blocks:
            return None
        if run.children:  # other children may begin here, too
            return tip[1].copy()
        del self._tips[run.number]
        return tip[1]

    def put(self, run: Run, state: Any) -> None:
        """Keep the hash state at the end of ``run``."""
        self._tips[run.number] = (run.start + run.blocks, state)
        self._tips.move_to_end(run.number)
        if len(self._tips) > MOST:
            self._tips.popitem(last=False)

    def drop(self, run: Run) -> None:
        """Drop the state of a run that was dropped."""
        self._tips.pop(run.number, None)
