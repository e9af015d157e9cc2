"""Counters of what happened to the events."""

from __future__ import annotations

import msgspec


class Tally(msgspec.Struct):
    """Counts of processed, skipped and faulty events, over all endpoints."""

    batches: int = 0
    stored: int = 0
    """Blocks that were announced."""
    removed: int = 0
    cleared: int = 0
    unknown_removals: int = 0
    """Removals of blocks that were not there."""
    malformed: int = 0
    """Events that contradict themselves."""
    over_limit: int = 0
    """Blocks that were left out because their endpoint has too many."""
    skipped: int = 0
    """Blocks in unknown media, and blocks of cache groups that do not stand for a prefix."""
    unreadable: int = 0
    """Batches that could not be decoded."""
    replays: int = 0
    failed_replays: int = 0
    other_topics: int = 0
    """Batches that were left out because of their topic, or because it names no known endpoint."""
    unknown_events: int = 0
    """Events of unknown kinds."""
