"""The plugins that come with the picker. A third party's are found by the entry points ``tierwise.plugins``."""

from __future__ import annotations

from typing import Any

from scorers.base import Plugin
from scorers.kv_utilization import KvUtilizationScorer
from scorers.lora import LoraAffinityScorer
from scorers.no_hit_lru import NoHitLruScorer
from scorers.pickers import MaxScorePicker, RandomPicker
from scorers.prefix import ApproxPrefixProducer, PrefixScorer
from scorers.queue import QueueScorer
from scorers.running import RunningRequestsScorer

PLUGINS: tuple[type[Plugin[Any]], ...] = (
    QueueScorer,
    KvUtilizationScorer,
    ApproxPrefixProducer,
    PrefixScorer,
    RunningRequestsScorer,
    LoraAffinityScorer,
    NoHitLruScorer,
    MaxScorePicker,
    RandomPicker,
)
"""To add one of ours: its file, and its class here."""
