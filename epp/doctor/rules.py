"""All rules, in the order in which an operator would look: what nothing works without comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from epp.doctor import rules_engines, rules_pickers, rules_pools, rules_rights, rules_routing
from epp.doctor.finding import Finding
from epp.doctor.shown import fit
from epp.doctor.snapshot import Snapshot

Rule = Callable[[Snapshot], Iterable[Finding]]
RULES: tuple[Rule, ...] = (
    rules_pools.definitions,
    rules_pools.both_groups,
    rules_pools.selectors,
    rules_pools.ports,
    rules_pools.unready_pods,
    rules_pools.shared_pods,
    rules_rights.rights,
    rules_pickers.flags,
    rules_pickers.pods,
    rules_pickers.probes,
    rules_pickers.configuration,
    rules_pickers.images,
    rules_pickers.clocks,
    rules_routing.services,
    rules_routing.slices,
    rules_routing.pool_conditions,
    rules_routing.routes,
    rules_routing.gateways,
    rules_routing.destination_rules,
    rules_engines.bypass,
    rules_engines.differing,
    rules_engines.memory,
    rules_engines.prefix_caching,
    rules_engines.events,
)


def examine(seen: Snapshot) -> list[Finding]:
    """Return what all rules find, each finding once; without definitions that alone, since all else follows from it."""
    if missing := [one for one in rules_pools.definitions(seen) if one.cause == rules_pools.NO_DEFINITIONS]:
        return missing
    return list(fit(dict.fromkeys(finding for rule in RULES for finding in rule(seen))))
