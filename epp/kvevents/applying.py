"""Applies the follower's orders to the picker's index."""

from __future__ import annotations

from epp.kvevents.orders import Add, Drop, FollowerMessage, Grow, Hold, Split
from scorers.precise.index import PreciseIndex


def perform(order: FollowerMessage, index: PreciseIndex) -> bool:
    """Apply ``order`` to the index; return False for a report that is not an order."""
    if type(order) is Hold:
        index.hold(order.run, order.holder, order.blocks)
    elif type(order) is Grow:
        index.grow(order.run, order.digests)
    elif type(order) is Add:
        index.add(order.run, order.parent, order.block_tokens, order.digests)
    elif type(order) is Drop:
        index.drop(order.run)
    elif type(order) is Split:
        index.split(order.run, order.blocks, order.upper)
    else:
        return False
    return True
