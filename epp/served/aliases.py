"""Names of the same weights, which share an engine's cached blocks.

vLLM hashes a block's tokens, its adapter and its salt, not the name that a request uses (``--served-model-name`` takes
several). An adapter's KV is its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from epp.served.kind import Kind


def aliases_of(kinds: Iterable[Kind]) -> dict[str, str]:
    """Return, for each name that shares its weights with others, the one name that stands for all of them.

    Names share weights on an endpoint if they have the same ``root``. Names are merged only if all endpoints that serve
    one of them serve the same ones; otherwise blocks that were computed with other weights could count as cached.
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
