"""Every plugin type that a configuration may name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from epp.config.sources import CoreMetricsExtractor, FileDiscovery, MetricsDataSource, SingleProfileHandler
from epp.config.strict import nearest
from epp.errors import ConfigError
from epp.parsers import PARSERS
from scorers import PLUGINS
from scorers.base import Filter, Picker, Plugin, Producer, Scorer

GROUP = "tierwise.plugins"

Kind = type[Plugin[Any]]

NOT_BUILT = frozenset(
    """
    active-request-scorer agent-identity always-disagg-multimodal-decider always-disagg-pd-decider
    burst-prefix-cache-producer by-label by-label-selector concurrency-detector
    context-length-aware data-parallel-profile-handler dcgm-data-source dcgm-extractor decode-filter
    disagg-headers-handler disagg-profile-handler disaggregatedset-rollout-screener edf-ordering-policy
    encode-filter endpoint-attribute-filter endpoint-attribute-scorer endpoint-notification-source
    fcfs-ordering-policy global-strict-fairness-policy header-based-testing-filter header-label-affinity-scorer
    header-profile-handler inflight-load-producer k8s-notification-source label-selector-filter latency-scorer
    latency-slo-admitter load-aware-scorer mm-embeddings-cache-producer mm-embeddings-cache-scorer
    models-data-extractor models-data-source multicluster-approx-prefix-cache-producer
    multicluster-file-discovery multicluster-kv-cache-utilization-scorer multicluster-prefix-cache-scorer
    multicluster-queue-scorer p2p-source-producer pd-profile-handler
    precise-prefix-cache-producer precise-prefix-cache-scorer predicted-latency-producer prefill-filter
    prefill-header-handler prefix-based-pd-decider prefix-cache-affinity-filter priority-holdback-policy
    priority-then-time-eviction-order-policy probabilistic-admitter program-aware-fairness
    request-attribute-reporter round-robin-fairness-policy session-affinity-filter session-affinity-scorer
    session-id-producer sheddable-eviction-filter slo-deadline-ordering-policy
    slo-headroom-tier-filter soft-reflective-ceiling-policy static-usage-limit-policy token-load-scorer
    token-producer tokenizer topology-affinity-filter topology-affinity-scorer topology-extractor
    utilization-detector utilization-filter
    weighted-random-picker
    """.split()  # noqa: SIM905 - one name a line would be longer than all the rest
)
"""Types of the Go picker that do not exist here: told apart from slips of the pen. Source: its runner's registry."""


def known_kinds() -> Mapping[str, Kind]:
    """Ours and those of installed packages, by type name. Read once, at start.

    Raises: ConfigError naming the entry point that cannot be loaded, or that takes a name in use.
    """
    own: tuple[Kind, ...] = (
        *PLUGINS, *PARSERS, SingleProfileHandler, FileDiscovery, MetricsDataSource, CoreMetricsExtractor,
    )  # fmt: skip
    kinds = {kind.type_name: kind for kind in own}
    for entry in entry_points(group=GROUP):
        where = f"entry point {entry.name!r} ({entry.value}) of {entry.dist.name if entry.dist else 'a package'}"
        try:
            kind = entry.load()
        except Exception as error:
            raise ConfigError(f"{where} cannot be loaded: {error}; mend or uninstall the package") from error
        if not (isinstance(kind, type) and issubclass(kind, Filter | Producer | Scorer | Picker)):
            raise ConfigError(f"{where} must be a class derived from Filter, Producer, Scorer or Picker")
        name = getattr(kind, "type_name", None)
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where} has no type_name")
        if name in kinds:
            raise ConfigError(f"{where} takes the type name {name!r}, which {kinds[name].__module__} has")
        kinds[name] = kind
    return kinds


def kind_named(name: str, kinds: Mapping[str, Kind], path: str) -> Kind:
    """The plugin type ``name``. Raises: ConfigError that lists the known ones and the nearest."""
    if not name:
        raise ConfigError(f"{path}.type: missing; known: {', '.join(sorted(kinds))}")
    if name in NOT_BUILT:
        raise ConfigError(
            f"{path}.type: {name} is a plugin of the Go picker that does not exist here yet; take it out, or use one "
            f"of {', '.join(sorted(kinds))}"
        )
    if name not in kinds:
        guess = nearest(name, kinds)
        listed = "" if guess.startswith("; known") else f"; known: {', '.join(sorted(kinds))}"
        raise ConfigError(f"{path}.type: unknown plugin type {name!r}{guess}{listed}")
    return kinds[name]
