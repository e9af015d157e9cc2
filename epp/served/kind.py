"""A comparable form of an endpoint's list of models; endpoints that are set up alike are of one kind."""

from __future__ import annotations

from typing import TypeAlias

Kind: TypeAlias = frozenset[tuple[str, str | None, str | None]]
"""Id, root and parent of each model or adapter. For an endpoint that has not listed its models, these are the names on
its metrics page, without root and parent."""


def base_names(kind: Kind) -> frozenset[str]:
    """Return the names of the base models in ``kind``."""
    return frozenset([name for name, _, parent in kind if parent is None])
