"""Names of the same weights, which share what an engine has cached.

vLLM hashes a block's tokens, its adapter and its salt, not the name that a request uses (``--served-model-name`` takes
several). An adapter's KV is its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from epp.served.kind import Kind


def aliases_of(kinds: Iterable[Kind]) -> dict[str, str]:
    """By each name that shares its weights with another, the one that stands for all of them.

    Only where every endpoint that serves a name has the same others beside it: else an endpoint could be taken to hold
    what another one computed for other weights. Names share weights on an endpoint when they have the same ``root``.
    """
    groups: dict[str, frozenset[str]] = {}
    doubtful: set[str] = set()
    for kind in kinds:
        by_root: dict[tuple[str | None, str], set[str]] = {}
        for name, root, parent in kind:
            alone = root is None or parent is not None
            by_root.setdefault((None, name) if alone else (root, ""), set()).add(name)
        for names in map(frozenset, by_root.values()):
            for name in names:
                if groups.setdefault(name, names) != names:
                    doubtful |= groups[name] | names
    return {name: min(names) for name, names in groups.items() if len(names) > 1 and not names & doubtful}
