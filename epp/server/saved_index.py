"""The prefix index that is kept from one run of a picker to the next."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from epp.errors import ConfigError
from epp.pool import index_file
from epp.pool.index_keeper import PATIENCE_S, IndexKeeper
from epp.runtime.background import Chore
from epp.server.core import Core
from epp.server.settings import SnapshotOptions


def open_saved_index(options: SnapshotOptions, core: Core, stack: AsyncExitStack) -> IndexKeeper | None:
    """Load the saved index and begin to keep it; what runs is stopped with ``stack``. None without a file.

    Raises: ConfigError for a file that could never be written.
    """
    file, every_s = options.file, options.interval_s
    if file is None:
        return None
    if (why := index_file.impossible(file)) is not None:
        raise ConfigError(f"--index-snapshot={file}: {why}")
    keeping = IndexKeeper(file, core.pool, lambda: core.plan.prefix_cache, clock=core.clock, every_s=every_s)
    keeping.load()
    core.pool.listeners.append(keeping)
    stack.callback(asyncio.get_running_loop().call_later(PATIENCE_S, keeping.give_up).cancel)
    if every_s:
        stack.push_async_callback(Chore("index-snapshot", keeping.keep).stop)
    return keeping
