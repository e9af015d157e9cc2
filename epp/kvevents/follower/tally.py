"""What became of the events."""

from __future__ import annotations

import msgspec


class Tally(msgspec.Struct):
    """What became of events, all endpoints together."""

    batches: int = 0
    stored: int = 0
    """Blocks."""
    removed: int = 0
    cleared: int = 0
    unknown_removals: int = 0
    """Of blocks that were not there."""
    malformed: int = 0
    """Events that contradict themselves."""
    over_limit: int = 0
    """Blocks that were left out, since an endpoint has too many."""
    skipped: int = 0
    """Blocks in media that nobody here knows, and of cache groups whose blocks do not stand for a prefix."""
    unreadable: int = 0
    """Batches."""
    replays: int = 0
    failed_replays: int = 0
    other_topics: int = 0
    """Batches that were left out for their topic, or that name no endpoint of ours."""
    unknown_events: int = 0
    """Of other kinds."""
