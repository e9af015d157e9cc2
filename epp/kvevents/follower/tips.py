"""The hash state at the ends of some runs, so that what grows block by block is not hashed from its start each time."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from epp.kvevents.follower.run import Run

MOST = 4096
"""640 bytes each."""


class Tips:
    """By number of a run, the states after its last block; the oldest go. Owner: the runs."""

    def __init__(self) -> None:
        self._tips: OrderedDict[int, tuple[int, Any]] = OrderedDict()

    def take(self, run: Run) -> Any:
        """The state after ``run``, the caller's own; None when it is not known."""
        tip = self._tips.get(run.number) if run.parent is not None else None
        if tip is None or tip[0] != run.start + run.blocks:
            return None
        if run.children:  # others may begin here, too
            return tip[1].copy()
        del self._tips[run.number]
        return tip[1]

    def put(self, run: Run, state: Any) -> None:
        """Remember the state after ``run``."""
        self._tips[run.number] = (run.start + run.blocks, state)
        self._tips.move_to_end(run.number)
        if len(self._tips) > MOST:
            self._tips.popitem(last=False)

    def drop(self, run: Run) -> None:
        """``run`` is gone."""
        self._tips.pop(run.number, None)
