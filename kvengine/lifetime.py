"""The parts of the offload engine that are alive in this process, so that they can be emptied or shut down by hand.

Neither is required: everything is released when the engine goes. By default, vLLM runs its scheduler and its workers in
separate processes, where these functions must be called. From outside of them,
``LLM.reset_prefix_cache(reset_connector=True)`` empties both caches.
"""

from __future__ import annotations

import weakref
from typing import Protocol


class Part(Protocol):
    """One half of a connector: the scheduler's side or a worker's."""

    def clear(self) -> None:
        """Forget all KV that is stored."""

    def shutdown(self) -> None:
        """Stop storing KV and release the memory. The second call does nothing."""


_parts: weakref.WeakSet[Part] = weakref.WeakSet()


def register(part: Part) -> None:
    """Register a part that now lives in this process; it is dropped when it is garbage-collected."""
    _parts.add(part)


def clear() -> int:
    """Forget all KV that parts in this process have stored; return the number of parts.

    Call it from the thread that runs the engine.
    """
    parts = list(_parts)
    for part in parts:
        part.clear()
    return len(parts)


def shutdown() -> int:
    """Release all host memory of this process; the engine goes on without it. Returns the number of parts.

    Call it from the thread that runs the engine.
    """
    parts = list(_parts)
    for part in parts:
        part.shutdown()
    return len(parts)
