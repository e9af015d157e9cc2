"""How near two endpoints are to each other."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec


class Level(Enum):
    """What two endpoints may share, the nearest first: who shares one shares those that follow."""

    HOST = "host"
    RACK = "rack"
    ZONE = "zone"
    REGION = "region"

    __hash__ = object.__hash__


class TopologyLabels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The labels that say where an endpoint is."""

    hostname: str = "kubernetes.io/hostname"
    rack: str = "topology.kubernetes.io/rack"
    zone: str = "topology.kubernetes.io/zone"
    region: str = "topology.kubernetes.io/region"

    def by_level(self) -> list[tuple[Level, str]]:
        """Nearest first."""
        return list(zip(Level, (self.hostname, self.rack, self.zone, self.region), strict=True))


def read_peer(value: str) -> dict[Level, str]:
    """``host=a,rack=b,zone=c,region=d`` as places; what is empty or unknown is left out."""
    pairs = dict([pair.split("=", 1) for pair in value.split(",") if "=" in pair])
    return {level: pairs[level.value] for level in Level if pairs.get(level.value)}


def common(peer: Mapping[Level, str], labels: Mapping[str, str], names: list[tuple[Level, str]]) -> Level | None:
    """The nearest level that ``peer`` and an endpoint with ``labels`` share. A place that is not known is no match."""
    for level, label in names:
        place = peer.get(level)
        if place and labels.get(label) == place:
            return level
    return None
