"""What of the offload engine is alive in this process, for whoever wants to end or empty it by hand.

Nobody has to: everything is released when the engine goes. vLLM runs its scheduler and its workers in processes of
their own unless told otherwise; from outside of those, ``LLM.reset_prefix_cache(reset_connector=True)`` empties both
caches.
"""

from __future__ import annotations

import weakref
from typing import Protocol


class Part(Protocol):
    """One half of a connector."""

    def clear(self) -> None:
        """Forget all KV that is kept."""

    def shutdown(self) -> None:
        """Keep no KV any more, and give the memory back. The second call does nothing."""


_parts: weakref.WeakSet[Part] = weakref.WeakSet()


def born(part: Part) -> None:
    """It lives in this process, until nobody knows it any more."""
    _parts.add(part)


def clear() -> int:
    """Forget all KV that is kept by what lives in this process; returns how many parts do.

    Call it from the thread that runs the engine.
    """
    parts = list(_parts)
    for part in parts:
        part.clear()
    return len(parts)


def shutdown() -> int:
    """Give all host memory of this process back; the engine serves on without it. Returns how many parts had some.

    Call it from the thread that runs the engine.
    """
    parts = list(_parts)
    for part in parts:
        part.shutdown()
    return len(parts)
