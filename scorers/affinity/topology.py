"""How near two endpoints are to each other."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec


class Level(Enum):
    """A place that two endpoints may share, the nearest first; sharing a level implies sharing those after it."""

    HOST = "host"
    RACK = "rack"
    ZONE = "zone"
    REGION = "region"

    __hash__ = object.__hash__


class TopologyLabels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The labels that name an endpoint's place."""

    hostname: str = "kubernetes.io/hostname"
    rack: str = "topology.kubernetes.io/rack"
    zone: str = "topology.kubernetes.io/zone"
    region: str = "topology.kubernetes.io/region"

    def by_level(self) -> list[tuple[Level, str]]:
        """Return the levels and their labels, nearest first."""
        return list(zip(Level, (self.hostname, self.rack, self.zone, self.region), strict=True))


def read_peer(value: str) -> dict[Level, str]:
    """Parse ``host=a,rack=b,zone=c,region=d`` into places; empty and unknown ones are left out."""
    pairs = dict([pair.split("=", 1) for pair in value.split(",") if "=" in pair])
    return {level: pairs[level.value] for level in Level if pairs.get(level.value)}


def common(peer: Mapping[Level, str], labels: Mapping[str, str], names: list[tuple[Level, str]]) -> Level | None:
    """Return the nearest level that ``peer`` and an endpoint with ``labels`` share; an unknown place is no match."""
    for level, label in names:
        place = peer.get(level)
        if place and labels.get(label) == place:
            return level
    return None
