"""The plugins that come with the picker. Third-party plugins are found by the entry points ``tierwise.plugins``."""

from __future__ import annotations

from typing import Any

from scorers.affinity.lora import LoraAffinityScorer
from scorers.affinity.session_affinity import SessionAffinityFilter, SessionAffinityScorer
from scorers.affinity.topology_affinity import TopologyAffinityFilter, TopologyAffinityScorer
from scorers.affinity.topology_extractor import TopologyExtractor
from scorers.base import Plugin
from scorers.cost.tier_cost import TierCostProducer, TierCostScorer
from scorers.cost.tier_cost_picker import TierCostPicker
from scorers.labels.context_length import ContextLengthAware
from scorers.labels.deprecated import ByLabelFilter
from scorers.labels.endpoint_attribute import EndpointAttributeScorer
from scorers.labels.endpoint_attribute_filter import EndpointAttributeFilter
from scorers.labels.header_label import HeaderLabelAffinityScorer
from scorers.labels.header_testing import HeaderTestingFilter
from scorers.labels.roles import DecodeFilter, EncodeFilter, PrefillFilter
from scorers.labels.selector import LabelSelectorFilter
from scorers.labels.served_model_filter import ServedModelFilter
from scorers.load.active_requests import ActiveRequestScorer
from scorers.load.kv_utilization import KvUtilizationScorer
from scorers.load.latency import LatencyScorer
from scorers.load.load_aware import LoadAwareScorer
from scorers.load.queue import QueueScorer
from scorers.load.running import RunningRequestsScorer
from scorers.load.token_load import TokenLoadScorer
from scorers.load.utilization import UtilizationFilter
from scorers.pickers import MaxScorePicker, RandomPicker, WeightedRandomPicker
from scorers.precise.deprecated import PrecisePrefixScorer
from scorers.precise.producer import PrecisePrefixProducer
from scorers.prefix.affinity_filter import PrefixAffinityFilter
from scorers.prefix.no_hit_lru import NoHitLruScorer
from scorers.prefix.producer import ApproxPrefixProducer
from scorers.prefix.scorer import PrefixScorer

PLUGINS: tuple[type[Plugin[Any]], ...] = (
    QueueScorer,
    KvUtilizationScorer,
    ApproxPrefixProducer,
    PrefixScorer,
    PrecisePrefixProducer,
    PrecisePrefixScorer,
    RunningRequestsScorer,
    LoraAffinityScorer,
    NoHitLruScorer,
    LoadAwareScorer,
    ActiveRequestScorer,
    TokenLoadScorer,
    SessionAffinityScorer,
    ContextLengthAware,
    LatencyScorer,
    EndpointAttributeScorer,
    HeaderLabelAffinityScorer,
    TopologyAffinityScorer,
    TopologyExtractor,
    TierCostProducer,
    TierCostScorer,
    LabelSelectorFilter,
    ByLabelFilter,
    PrefillFilter,
    DecodeFilter,
    EncodeFilter,
    PrefixAffinityFilter,
    UtilizationFilter,
    HeaderTestingFilter,
    SessionAffinityFilter,
    EndpointAttributeFilter,
    TopologyAffinityFilter,
    ServedModelFilter,
    MaxScorePicker,
    RandomPicker,
    WeightedRandomPicker,
    TierCostPicker,
)
"""All built-in plugin classes. To add one, write its file and append its class here."""

DRAWING = (MaxScorePicker, RandomPicker, WeightedRandomPicker, TierCostPicker, PrefixAffinityFilter)
"""Plugins that make random choices: their constructors accept ``random`` as well."""
