"""Which idle chunk goes first; one file per policy."""

from kvengine.policies.base import Policy
from kvengine.policies.lru import Lru

POLICIES: dict[str, type[Policy]] = {"lru": Lru}

__all__ = ["POLICIES", "Lru", "Policy"]
