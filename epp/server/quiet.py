"""How long a picker that is no longer ready serves before it closes its port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from epp.wire.http2.counters import Statistics

QUIET_S, LOOK_EVERY_S = 5.0, 0.1
"""The time without a new stream that counts as quiet. A guess: two rounds of a proxy's health check, which the charts
run every 2 s.
"""


async def wait_until_quiet(statistics: Callable[[], Statistics], timeout_s: float, *, counts_connections: bool) -> None:
    """Return once no stream has begun for ``QUIET_S``, after ``timeout_s`` at the latest.

    Returns at once if no proxy is connected. A transport that does not count connections is taken as connected once it
    has had a stream.
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


async def wait_until_left(statistics: Callable[[], Statistics], timeout_s: float, *, counts_connections: bool) -> None:
    """Return once no proxy is connected, after ``timeout_s`` at the latest.

    A transport that does not count connections is taken as connected.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + timeout_s
    while (now := clock()) < until:
        if counts_connections and not statistics().connections:
            return
        await asyncio.sleep(min(LOOK_EVERY_S, until - now))
