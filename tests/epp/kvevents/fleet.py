"""A picker's index fed by events without a socket, and a naive model of the same."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from epp.kvevents.applying import perform
from epp.kvevents.follower.decoding import AllBlocksCleared, BlockRemoved, BlockStored
from epp.kvevents.follower.residents import Residents
from epp.kvevents.follower.runs import Runs
from epp.kvevents.follower.tally import Tally
from epp.parsers.identity import TOKENS, identity
from scorers.precise.index import PreciseIndex

SECRET = bytes(32)
BASE = identity(TOKENS, "", None)


def data(tokens: Sequence[int]) -> bytes:
    return array("I", tokens).tobytes()


class Fleet:
    """Several sources of events, with one index."""

    def __init__(self, sources: int = 1) -> None:
        self.runs = Runs(SECRET)
        self.tally = Tally()
        self.noted: list[tuple[str, str]] = []
        self.sources = [
            Residents(self.runs, n, self.tally, lambda kind, value: self.noted.append((kind, value)))
            for n in range(sources)
        ]
        self.index = PreciseIndex(SECRET)

    def say(self, source: int, *events: Any, rank: int = 0) -> None:
        """Let ``source`` publish one batch."""
        self.sources[source].apply(events, rank)
        self.flush()

    def flush(self) -> None:
        for order in self.runs.take():
            perform(order, self.index)

    def held(self, tokens: Sequence[int], name: bytes = BASE) -> list[dict[int, int]]:
        """Return the contiguous tokens by tier and source."""
        return list(self.index.match(name, data(tokens)).held)

    def check(self) -> None:
        self.runs.check()
        self.index.check_integrity()


Content = tuple[bytes, tuple[int, ...]]


class Naive:
    """One source by its definition: counts by column and hash, and the tokens that each hash stands for."""

    TIERS = ("GPU", "CPU", "STORAGE")

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, str, int]] = Counter()  # size (0: only named), medium, hash
        self.content: dict[tuple[int, int], Content] = {}
        self.waiting: list[tuple[int, int, list[int], list[int]]] = []

    def is_here(self, size: int, name: int) -> bool:
        return any(self.counts[size, medium, name] for medium in self.TIERS)

    def sizes(self) -> list[int]:
        return list(dict.fromkeys(size for size, _, _ in self.counts if size))

    def apply(self, event: Any) -> None:
        if isinstance(event, AllBlocksCleared):
            for key in [key for key in self.counts if key[1] == "GPU"]:
                del self.counts[key]
        elif isinstance(event, BlockRemoved):
            for name in event.block_hashes:
                self.remove(str(event.medium), int(name))  # type: ignore[arg-type]
        else:
            self.store(event)
        self.forget()

    def remove(self, medium: str, name: int) -> None:
        for size in [*self.order, 0]:
            if self.counts[size, medium, name]:
                self.counts[size, medium, name] -= 1
                return

    order: list[int]

    def store(self, event: BlockStored) -> None:
        medium, size = str(event.medium), event.block_size
        names = [int(name) for name in event.block_hashes]  # type: ignore[arg-type]
        if not event.token_ids:
            for name in names:
                known = next((s for s in self.order if self.is_here(s, name)), 0)
                self.counts[known, medium, name] += 1
            return
        if size not in self.order:
            self.order.append(size)
        for name in names:
            self.adopt(size, name)
            self.counts[size, medium, name] += 1
        parent = event.parent_block_hash
        if parent is None:
            self.place(size, names, event.token_ids, (BASE, ()))
        else:
            self.waiting.append((size, int(parent), names, event.token_ids))  # type: ignore[arg-type]
        self.settle()

    def adopt(self, size: int, name: int) -> None:
        """Move the counts that came with the hash alone to this block."""
        if self.is_here(size, name):
            return
        for medium in self.TIERS:
            self.counts[size, medium, name] += self.counts.pop((0, medium, name), 0)

    def place(self, size: int, names: list[int], tokens: list[int], parent: Content) -> None:
        for n, name in enumerate(names):
            if self.is_here(size, name):
                self.content.setdefault((size, name), (parent[0], (*parent[1], *tokens[: (n + 1) * size])))

    def settle(self) -> None:
        """Place the blocks whose parent is known now."""
        changed = True
        while changed:
            changed = False
            for each in list(self.waiting):
                size, parent, names, tokens = each
                content = self.content.get((size, parent)) or next(
                    (
                        self.content[other, parent]
                        for other in self.order
                        if (other, parent) in self.content and len(self.content[other, parent][1]) % size == 0
                    ),
                    None,
                )
                if content is not None:
                    self.waiting.remove(each)
                    self.place(size, names, tokens, content)
                    changed = True

    def forget(self) -> None:
        """Drop the hashes that have no count any more."""
        for size, name in list(self.content):
            if not self.is_here(size, name):
                del self.content[size, name]

    def held(self, tokens: Sequence[int]) -> list[int]:
        """Return the number of tokens held, by tier."""
        found = []
        for medium in self.TIERS:
            most = 0
            for size in self.order:
                here = {
                    self.content[s, n]
                    for s, m, n in +self.counts
                    if (s, m) == (size, medium) and (s, n) in self.content
                }
                end = size
                while end <= len(tokens) and (BASE, tuple(tokens[:end])) in here:
                    end += size
                most = max(most, end - size)
            found.append(most)
        return found


def encoded(*events: Any, rank: int | None = None, rows: bool = False) -> bytes:
    """Return a batch as an engine publishes it."""
    said = [msgspec.to_builtins(event, builtin_types=(bytes,)) for event in events]
    if rows:
        said = [[event.pop("type"), *event.values()] for event in said]
    return msgspec.msgpack.encode([0.5, said] if rank is None else [0.5, said, rank])
