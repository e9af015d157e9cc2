"""How long a picker that is not ready any more goes on serving before it closes its port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from epp.wire.http2.counters import Statistics

QUIET_S, LOOK_EVERY_S = 5.0, 0.1
"""How long no stream must have begun: a guess, two rounds of a proxy's health check, which is every 2 s in the
charts."""


async def until_nobody_comes(
    statistics: Callable[[], Statistics], timeout_s: float, *, counts_connections: bool
) -> None:
    """Return once no stream has begun for ``QUIET_S``, after ``timeout_s`` at the latest, and at once where nobody is
    connected: a transport that ``counts_connections`` knows; of another, whoever has had a stream may still be there.
    """
    before = statistics()
    if not (before.connections if counts_connections else before.streams_total):
        return
    clock = asyncio.get_running_loop().time
    now = quiet_since = clock()
    until, seen = now + timeout_s, -1
    while now < until and now < quiet_since + QUIET_S:
        if (total := statistics().streams_total) != seen:
            seen, quiet_since = total, now
        await asyncio.sleep(min(LOOK_EVERY_S, until - now))
        now = clock()
