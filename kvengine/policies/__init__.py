"""Eviction policies: which idle chunk is evicted next. One file per policy."""

from typing import Any

from kvengine.policies.arc import Arc
from kvengine.policies.base import Policy
from kvengine.policies.lru import Lru

POLICIES: dict[str, type[Policy[Any]]] = {"lru": Lru, "arc": Arc}

__all__ = ["POLICIES", "Arc", "Lru", "Policy"]
