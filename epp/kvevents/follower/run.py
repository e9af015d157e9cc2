"""A stretch of blocks in which no known prompt ends or branches off: its tokens, and how much each holder has of it.

A holder has the first contiguous blocks of a run, and *loose* blocks behind a hole, which count when the hole closes.
"""

from __future__ import annotations

import msgspec

BYTES_PER_TOKEN = 4


class Run(msgspec.Struct, gc=False, eq=False):
    """A node of the prefix tree: consecutive blocks with their tokens and holders.

    Invariant: ``parent.children[data[:block]] is self``, unless the run is a root or has been dropped because it has no
    holders any more. A dropped run is kept while places name it, since its earlier part may have been split off.
    """

    number: int
    parent: Run | None
    start: int
    """The depth of the run's first block."""
    data: bytes
    """The run's tokens, in the form of ``scorers.base.Prompt.data``."""
    blocks: int
    block_tokens: int
    identity: bytes = b""
    """The identity of the prompts below a root; empty for other runs."""
    children: dict[bytes, Run] | None = None
    have: dict[int, int] | None = None
    """By holder: how many contiguous blocks it has from the run's start, at least 1."""
    loose: dict[int, set[int]] | None = None
    """By holder: the other blocks that it has, counted from the run's start."""
    named: int = 0
    """How many places name this run."""


class RunSpan(msgspec.Struct, frozen=True, gc=False):
    """Consecutive blocks of one run."""

    run: Run
    depth: int
    """The depth of the first block."""
    blocks: int


def common(held: bytes, begin: int, data: bytes, step: int) -> int:
    """Return how many whole blocks ``held``, from ``begin`` on, has in common with the start of ``data``."""
    reach = min(len(held) - begin, len(data))
    if held[begin : begin + reach] == data[:reach]:
        return reach // step
    low, high = 0, reach // step  # the first `low` blocks are equal, the first `high` are not
    while high - low > 1:
        tried = (low + high) // 2
        if held[begin + low * step : begin + tried * step] == data[low * step : tried * step]:
            low = tried
        else:
            high = tried
    return low


def gain(run: Run, at: int, count: int, holder: int) -> bool:
    """Give ``holder`` the ``count`` blocks of ``run`` from ``at`` on; return whether its contiguous part has grown."""
    before = contiguous = (run.have or {}).get(holder, 0)
    if at > contiguous:
        _loosen(run, holder, range(at, at + count))
        return False
    contiguous = max(contiguous, at + count)
    loose = (run.loose or {}).get(holder)
    if loose:
        loose.difference_update(range(at, at + count))
        while contiguous in loose:
            loose.discard(contiguous)
            contiguous += 1
        if not loose:
            _no_loose(run, holder)
    if contiguous == before:
        return False
    if run.have is None:
        run.have = {}
    run.have[holder] = contiguous
    return True


def lose(run: Run, at: int, holder: int) -> bool:
    """Take block ``at`` of ``run`` from ``holder``; return whether its contiguous part has shrunk."""
    contiguous = (run.have or {}).get(holder, 0)
    if run.have is None or at >= contiguous:
        loose = (run.loose or {}).get(holder)
        if loose is not None:
            loose.discard(at)
            if not loose:
                _no_loose(run, holder)
        return False
    if at + 1 < contiguous:
        _loosen(run, holder, range(at + 1, contiguous))
    if at:
        run.have[holder] = at
    else:
        del run.have[holder]
    return True


def _loosen(run: Run, holder: int, positions: range) -> None:
    if run.loose is None:
        run.loose = {}
    run.loose.setdefault(holder, set()).update(positions)


def _no_loose(run: Run, holder: int) -> None:
    if run.loose is not None:
        del run.loose[holder]
        run.loose = run.loose or None
