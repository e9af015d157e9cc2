"""The runs of blocks that the engines of one fleet hold, and every change of them as an order for the picker's index.

This is the other side of ``scorers.precise.index``: the tokens are here, their digests there. A block is found by its
engine's hash (``residents``), which leads to a *place*: the number of a run and a depth, in blocks from the prompt's
start. Where a run is split, the deeper part keeps the number, and a place in the upper part is found by going up.

    root ── run 7 (312 blocks) ─┬─ run 1 (40 blocks)     a place (1, 5) lies in run 7
                                └─ run 9 (7 blocks)

An endpoint's tier is a *holder*, a small number; ``shares`` keeps what a holder has of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epp.kvevents.follower.run import BYTES_PER_TOKEN, Run, RunSpan, common, gain, lose
from epp.kvevents.follower.tips import Tips
from epp.kvevents.orders import Add, Drop, Grow, Hold, Order, Split
from scorers.index.identity import PrefixHasher, digests

LONGEST_RUN = 4096
"""Maximum length in blocks. A run grows by copying, and closing a hole in it means looking at all blocks behind."""


class Runs:
    """The prefix tree of the fleet's runs. ``take()`` returns every change, in order.

    Invariant: a run that is not a root has holders or children, or was made in the step under way. Owner: the process
    that follows the engines.
    """

    def __init__(self, secret: bytes) -> None:
        self.distinct_blocks = 0
        """How many blocks have at least one holder."""
        self._hasher = PrefixHasher(secret)
        self._roots: dict[tuple[int, bytes], Run] = {}
        self._runs: dict[int, Run] = {}
        self._next = 1
        self._free: list[int] = []
        self._orders: list[Order] = []
        self._changed: dict[tuple[int, int], Run] = {}  # by run number and holder
        self._tips = Tips()
        self._cut: list[Run] = []  # runs that splits have left without holders since the last ``settle``

    def __len__(self) -> int:
        return len(self._runs)

    def run(self, number: int) -> Run:
        """Return the run with the number that a place names."""
        return self._runs[number]

    def root(self, block_tokens: int, identity: bytes) -> Run:
        """Return the root of prompts with ``identity`` in blocks of ``block_tokens`` tokens; make it if needed."""
        key = (block_tokens, identity)
        root = self._roots.get(key)
        if root is None:
            root = self._roots[key] = Run(0, None, 0, b"", 0, block_tokens, identity)
        return root

    def lay(self, run: Run, depth: int, data: bytes) -> list[RunSpan]:
        """Return the places of the blocks in ``data``, which follow the block at ``depth`` of ``run``.

        A depth of -1 is the prompt's start. Missing runs are made. The caller must record the holders at once, and then
        call ``settle``.
        """
        run = self._climb(run, depth)
        at, depth = depth + 1 - run.start, depth + 1
        step = run.block_tokens * BYTES_PER_TOKEN
        places: list[RunSpan] = []
        while data:
            if at == run.blocks:
                child = (run.children or {}).get(data[:step])
                if child is None:
                    places.append(self._append(run, depth, data[: LONGEST_RUN * step]))
                    run, data = places[-1].run, data[LONGEST_RUN * step :]
                    at, depth = run.blocks, depth + places[-1].blocks
                    continue
                run, at = child, 0
            known = common(run.data, at * step, data, step)
            if known:
                places.append(RunSpan(run, depth, known))
                at, depth, data = at + known, depth + known, data[known * step :]
            if data and at < run.blocks:
                below, run = run, self._split(run, at)
                at = run.blocks
                if not below.have and not below.loose and not below.children:
                    self._cut.append(below)  # places may name it until it has holders
        return places

    def hold(self, run: Run, depth: int, blocks: int, holder: int) -> None:
        """Record that ``holder`` has the ``blocks`` blocks from ``depth`` on, which ``lay`` has placed in ``run``.

        If ``run`` was split meanwhile, some or all of them are in runs above it.
        """
        while blocks:
            at_run = self._climb(run, depth + blocks - 1)
            first = max(depth, at_run.start)
            count = depth + blocks - first
            self._have(at_run, first - at_run.start, count, holder)
            blocks -= count

    def release(self, run: Run, depth: int, holder: int) -> None:
        """Record that ``holder`` no longer has the block at ``depth``."""
        run = self._climb(run, depth)
        if lose(run, depth - run.start, holder):
            self._changed[run.number, holder] = run
        self.discard(run)

    def settle(self, places: Sequence[RunSpan]) -> None:
        """Drop the runs that ``lay`` has made or cut off, if they have no holders."""
        for run in (places[-1].run, *self._cut):
            self.discard(run)
        self._cut.clear()

    def discard(self, run: Run) -> None:
        """Drop ``run``, and the runs above it, as far as they have no holders and no children."""
        while run.parent is not None and not run.have and not run.loose and not run.children:
            above = run.parent
            siblings = above.children or {}
            key = run.data[: run.block_tokens * BYTES_PER_TOKEN]
            if siblings.get(key) is not run:
                return  # it was dropped before
            del siblings[key]
            if not siblings:
                above.children = None
            self._orders.append(Drop(run.number))
            self._tips.drop(run)
            self.distinct_blocks -= run.blocks
            if not run.named:
                self._reuse(run)
            run = above
        if run.parent is None and not run.children:
            self._roots.pop((run.block_tokens, run.identity), None)

    def name(self, run: Run, places: int) -> None:
        """Add ``places`` to the number of places that name ``run``; a negative number takes places away."""
        run.named += places
        if not run.named and not run.have and not run.loose and not run.children and not self._is_laid(run):
            self._reuse(run)

    def path(self, run: Run, depth: int) -> tuple[bytes, bytes]:
        """Return the identity of a prompt, and its tokens up to and including the block at ``depth``."""
        run = self._climb(run, depth)
        pieces = [run.data[: (depth + 1 - run.start) * run.block_tokens * BYTES_PER_TOKEN]]
        above = run.parent
        while above is not None:
            pieces.append(above.data)
            run, above = above, above.parent
        return run.identity, b"".join(reversed(pieces))

    def take(self) -> list[Order]:
        """Return the changes since the last call, as orders."""
        orders, self._orders = self._orders, []
        for (number, holder), run in self._changed.items():
            if self._is_laid(run):
                orders.append(Hold(number, holder, (run.have or {}).get(holder, 0)))
        self._changed.clear()
        return orders

    def check(self) -> None:
        """Check the invariants. Raises: AssertionError if one does not hold."""
        laid = list(self._roots.values())
        seen = 0
        while laid:
            run = laid.pop()
            step = run.block_tokens * BYTES_PER_TOKEN
            assert len(run.data) == run.blocks * step  # noqa: S101 - this is the check
            if run.parent is not None:
                seen += run.blocks
                assert run.have or run.loose or run.children, f"run {run.number} is of no use"  # noqa: S101
                assert run.start == run.parent.start + run.parent.blocks  # noqa: S101
            for holder, blocks in (run.have or {}).items():
                assert 0 < blocks <= run.blocks  # noqa: S101
                assert blocks not in (run.loose or {}).get(holder, ())  # noqa: S101
            for key, child in (run.children or {}).items():
                assert child.parent is run, f"run {child.number}"  # noqa: S101
                assert child.data[:step] == key, f"run {child.number}"  # noqa: S101
                laid.append(child)
        assert seen == self.distinct_blocks, (seen, self.distinct_blocks)  # noqa: S101

    def _climb(self, run: Run, depth: int) -> Run:
        while depth < run.start and run.parent is not None:
            run = run.parent
        return run

    def _is_laid(self, run: Run) -> bool:
        above = run.parent
        return above is not None and (above.children or {}).get(run.data[: run.block_tokens * BYTES_PER_TOKEN]) is run

    def _append(self, run: Run, depth: int, data: bytes) -> RunSpan:
        """Put the blocks in ``data`` behind ``run``: as part of it if it has at most one holder, else as a child."""
        step = run.block_tokens * BYTES_PER_TOKEN
        blocks = len(data) // step
        state = self._state(run)
        new = digests(state, memoryview(data), 0, len(data), step)
        self.distinct_blocks += blocks
        alone = run.parent is not None and not run.children and len(run.have or ()) <= 1
        if alone and run.blocks + blocks <= LONGEST_RUN:
            run.data += data
            run.blocks += blocks
            self._orders.append(Grow(run.number, new))
        else:
            child = Run(self._number(), run, run.start + run.blocks, data, blocks, run.block_tokens)
            self._runs[child.number] = child
            if run.children is None:
                run.children = {}
            run.children[data[:step]] = child
            self._orders.append(Add(child.number, run.number, run.block_tokens, new))
            run = child
        self._tips.put(run, state)
        return RunSpan(run, depth, blocks)

    def _state(self, run: Run) -> Any:
        """Return the hash state at the end of ``run``. The caller may change it."""
        state = self._tips.take(run)
        if state is not None:
            return state
        identity, data = self.path(run, run.start + run.blocks - 1)
        state = self._hasher.begin(identity)
        state.update(data)
        return state

    def _split(self, run: Run, blocks: int) -> Run:
        """Cut off the first ``blocks`` blocks, 1 or more, as a new parent, and return that."""
        step = run.block_tokens * BYTES_PER_TOKEN
        above = run.parent
        assert above is not None, "a root has no blocks"  # noqa: S101
        upper = Run(self._number(), above, run.start, run.data[: blocks * step], blocks, run.block_tokens)
        self._runs[upper.number] = upper
        (above.children or {})[run.data[:step]] = upper
        run.parent, run.start, run.blocks = upper, run.start + blocks, run.blocks - blocks
        run.data = run.data[blocks * step :]
        upper.children = {run.data[:step]: run}
        self._orders.append(Split(run.number, blocks, upper.number))
        have, loose = run.have or {}, run.loose or {}
        run.have = run.loose = None
        for holder, contiguous in have.items():
            if (run.number, holder) in self._changed:
                self._changed[upper.number, holder] = upper
            upper.have = upper.have or {}
            upper.have[holder] = min(contiguous, blocks)
            if contiguous > blocks:
                run.have = run.have or {}
                run.have[holder] = contiguous - blocks
        for holder, positions in loose.items():
            self._changed[upper.number, holder], self._changed[run.number, holder] = upper, run
            for position in sorted(positions):
                part, at = (upper, position) if position < blocks else (run, position - blocks)
                self._have(part, at, 1, holder)
        return upper

    def _have(self, run: Run, at: int, count: int, holder: int) -> None:
        if gain(run, at, count, holder):
            self._changed[run.number, holder] = run

    def _number(self) -> int:
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1

    def _reuse(self, run: Run) -> None:
        if self._runs.pop(run.number, None) is run:
            self._free.append(run.number)
