"""The pieces that an endpoint's order of last use is made of: stretches of runs, and the place where a tier ends."""

from __future__ import annotations

import msgspec

from scorers.index.tree import Node


class Stretch(msgspec.Struct, gc=False, eq=False):
    """Blocks of a run that an endpoint used together last, and their place in the endpoint's order of last use.

    Most runs are one stretch. A prompt that ends within a run leaves two: the beginning, which was just used, and the
    rest. Like a node, a stretch is not tracked by the garbage collector.
    """

    node: Node
    blocks: int = 0
    start: int = 0
    """Number of blocks of the run before this stretch."""
    tiers: int = 0
    """One bit for each tier that holds at least the first block; 0 once no tier does, and then for good."""
    used_s: float = 0.0
    above: Stretch | None = None
    """The stretch right before this one in the same run; it is newer."""
    newer: Stretch = None  # type: ignore[assignment]  # linked as soon as it is made
    older: Stretch = None  # type: ignore[assignment]

    @property
    def end(self) -> int:
        """Number of blocks of the run up to the end of this stretch."""
        return self.start + self.blocks

    def unlink(self) -> None:
        """Remove the stretch from the order."""
        self.newer.older = self.older
        self.older.newer = self.newer


class Cut:
    """The place where a tier ends. Units: blocks.

    Invariant: ``used <= capacity`` between calls. All stretches newer than ``last`` are held whole (if the tier is
    gated, whole or not at all); of ``last`` the first ``kept`` blocks are held (at least 1); nothing older is held. If
    the tier holds nothing, ``last`` is the list's end.
    """

    __slots__ = ("bit", "capacity", "kept", "last", "mark", "used")

    def __init__(self, bit: int, mark: int, last: Stretch) -> None:
        self.bit = bit
        """The tier's bit in ``Node.full`` and ``Node.partial``."""
        self.mark = mark
        """The tier's bit in ``Stretch.tiers``."""
        self.last = last
        self.capacity = self.used = self.kept = 0

    def kept_of(self, stretch: Stretch) -> int:
        """Return how many blocks of ``stretch`` the tier holds."""
        if not stretch.tiers & self.mark:
            return 0
        return self.kept if self.last is stretch else stretch.blocks
