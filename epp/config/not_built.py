"""Plugin types of the Go picker that do not exist here."""

from __future__ import annotations

NOT_BUILT = frozenset(
    [
        "agent-identity",
        "always-disagg-multimodal-decider",
        "always-disagg-pd-decider",
        "burst-prefix-cache-producer",
        "data-parallel-profile-handler",
        "dcgm-data-source",
        "dcgm-extractor",
        "disagg-headers-handler",
        "disagg-profile-handler",
        "disaggregatedset-rollout-screener",
        "header-profile-handler",
        "latency-slo-admitter",
        "mm-embeddings-cache-producer",
        "mm-embeddings-cache-scorer",
        "models-data-extractor",
        "models-data-source",
        "multicluster-approx-prefix-cache-producer",
        "multicluster-file-discovery",
        "multicluster-kv-cache-utilization-scorer",
        "multicluster-prefix-cache-scorer",
        "multicluster-queue-scorer",
        "p2p-source-producer",
        "pd-profile-handler",
        "predicted-latency-producer",
        "prefill-header-handler",
        "prefix-based-pd-decider",
        "probabilistic-admitter",
        "slo-headroom-tier-filter",
    ]
)
"""They are distinguished from misspellings. Source: the registry of its runner."""
