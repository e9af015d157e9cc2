"""The plugins that come with the picker. A third party's are found by the entry points ``tierwise.plugins``."""

from __future__ import annotations

from typing import Any

from scorers.active_requests import ActiveRequestScorer
from scorers.base import Plugin
from scorers.context_length import ContextLengthAware
from scorers.endpoint_attribute import EndpointAttributeScorer
from scorers.endpoint_attribute_filter import EndpointAttributeFilter
from scorers.header_label import HeaderLabelAffinityScorer
from scorers.header_testing import HeaderTestingFilter
from scorers.kv_utilization import KvUtilizationScorer
from scorers.labels import ByLabelFilter, LabelSelectorFilter
from scorers.latency import LatencyScorer
from scorers.load_aware import LoadAwareScorer
from scorers.lora import LoraAffinityScorer
from scorers.no_hit_lru import NoHitLruScorer
from scorers.pickers import MaxScorePicker, RandomPicker, WeightedRandomPicker
from scorers.precise import PrecisePrefixProducer, PrecisePrefixScorer
from scorers.prefix import ApproxPrefixProducer, PrefixScorer
from scorers.prefix_affinity import PrefixAffinityFilter
from scorers.queue import QueueScorer
from scorers.roles import DecodeFilter, EncodeFilter, PrefillFilter
from scorers.running import RunningRequestsScorer
from scorers.served_model_filter import ServedModelFilter
from scorers.session_affinity import SessionAffinityFilter, SessionAffinityScorer
from scorers.tier_cost import TierCostProducer, TierCostScorer
from scorers.tier_cost_picker import TierCostPicker
from scorers.token_load import TokenLoadScorer
from scorers.topology_affinity import TopologyAffinityFilter, TopologyAffinityScorer
from scorers.utilization import UtilizationFilter

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
"""To add one of ours: its file, and its class here."""

DRAWING = (MaxScorePicker, RandomPicker, WeightedRandomPicker, TierCostPicker, PrefixAffinityFilter)
"""Those that draw lots: their constructors take ``random`` as well."""
