"""What does keeping the index over a restart cost: taking it, writing, reading and restoring it, by size and shape?

    python -m benchmarks.index.index_snapshot [--blocks 1000000] [--json FILE]

Blocks are (block, endpoint) pairs of 64 tokens. *Short runs* branch every 4 blocks; *long prompts* are runs of 400; in
*one prefix* every endpoint holds the same prompts. The event loop is held up by *take* once, at the end, and by
*restore* for each endpoint once, at the start: the longest is given.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from epp.pool.index_file import SavedIndex, read, write
from scorers.base import Prompt, Slot
from scorers.index.index import BLOCK_TOKENS, BYTES_PER_TOKEN, PrefixIndex
from scorers.index.snapshot import restore
from scorers.index.snapshot_writer import taken

T = TypeVar("T")
BLOCK_BYTES = BLOCK_TOKENS * BYTES_PER_TOKEN
SHAPES: dict[str, tuple[int, int, bool]] = {
    "short runs": (64, 4, False),
    "conversations": (64, 40, False),
    "long prompts": (64, 400, False),
    "one prefix": (64, 40, True),
    "one endpoint": (1, 40, False),
}
"""Endpoints, blocks of a run, and whether all endpoints hold the same."""


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds, and what came of it."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def filled(blocks: int, endpoints: int, run: int, *, shared: bool) -> PrefixIndex:
    """An index that holds so many, in runs of so many: prompts of four runs, each branching from the last one's first
    two."""
    index = PrefixIndex(2)
    draw = random.Random(1)
    each = blocks // endpoints
    for slot in range(endpoints):
        for tier in range(2):
            index.set_capacity(Slot(slot), tier, each * BLOCK_TOKENS)
    prompts: list[Prompt] = []
    for slot in range(endpoints):
        if not shared or not prompts:
            prompts = []
            for _ in range(max(1, each // (run * 6))):
                trunk = draw.randbytes(run * 2 * BLOCK_BYTES)
                prompts += [Prompt(b"m", trunk + draw.randbytes(run * 2 * BLOCK_BYTES)) for _ in range(2)]
        for prompt in prompts:
            index.record(index.match(prompt), Slot(slot))
    return index


def measured(blocks: int, endpoints: int, run: int, *, shared: bool) -> dict[str, float]:
    """Seconds and bytes of each step."""
    index = filled(blocks, endpoints, run, shared=shared)
    slots = {str(slot): Slot(slot) for slot in range(endpoints)}
    take_s, snapshot = timed(lambda: taken(index, slots))
    kept = SavedIndex(time.time(), ("gpu", "cpu"), {}, snapshot)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        write_s, size = timed(lambda: write(path, kept))
        read_s, again = timed(lambda: read(path, time.time()))
    assert again is not None
    new = PrefixIndex(2, secret=again.index.secret)
    for slot in range(endpoints):
        for tier in range(2):
            new.set_capacity(Slot(slot), tier, blocks // endpoints * BLOCK_TOKENS)
    restores = [
        timed(lambda address=address, slot=slot: restore(new, slot, again.index, address))[0]  # type: ignore[misc]
        for address, slot in slots.items()
    ]
    if new.statistics() != index.statistics():
        raise RuntimeError("what was restored is not what was taken")
    return {
        "blocks": index.statistics().blocks,
        "runs": index.statistics().runs,
        "bytes": size,
        "take_s": take_s,
        "write_s": write_s,
        "read_s": read_s,
        "restore_s": sum(restores),
        "longest_restore_s": max(restores),
    }


def main() -> None:
    """Measure every shape and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    table = Table(title=f"{arguments.blocks:,} (block, endpoint) pairs")
    for column in ("shape", "endpoints", "runs", "MB", "take", "write", "read", "restore", "longest restore"):
        table.add_column(column, justify="left" if column == "shape" else "right")
    results = {}
    for name, (endpoints, run, shared) in SHAPES.items():
        found = results[name] = measured(arguments.blocks, endpoints, run, shared=shared)
        steps = ("take_s", "write_s", "read_s", "restore_s", "longest_restore_s")
        table.add_row(
            name, str(endpoints), f"{found['runs']:,.0f}", f"{found['bytes'] / 1e6:.1f}",
            *[f"{found[step] * 1e3:,.0f} ms" for step in steps],
        )  # fmt: skip
    Console(width=120).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
