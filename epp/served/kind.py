"""What an endpoint lists, to be compared: endpoints that are set up alike are of one kind."""

from __future__ import annotations

from typing import TypeAlias

Kind: TypeAlias = frozenset[tuple[str, str | None, str | None]]
"""Id, root and parent of each model or adapter. Of an endpoint that has not listed them, the names of its metrics page
with neither root nor parent."""


def base_names(kind: Kind) -> frozenset[str]:
    """The names that are no adapter's."""
    return frozenset([name for name, _, parent in kind if parent is None])
