"""Send a request near the endpoint that another picker chose for its first half."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.affinity.topology import Level, common, read_peer
from scorers.affinity.topology_extractor import TopologyExtractor
from scorers.base import Candidate, Filter, Request, Scorer

SCORES: dict[Level | None, float] = {
    Level.HOST: 1.0,
    Level.RACK: 0.2,
    Level.ZONE: 0.05,
    Level.REGION: 0.02,
    None: 0.0,
}
"""Scores that follow the bandwidth between the two endpoints. Source: the Go picker's scorer of the same name."""


class TopologyScorerParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The header with the peer's place, and the producer of the endpoints' places."""

    peer_topology_header: str = ""
    """The request header, ``host=...,rack=...,zone=...,region=...``. If it is not configured, the peer is always
    unknown."""
    topology_producer_name: str | None = None
    """The name of a ``topology-extractor``; None is the only one there is, or the usual labels of Kubernetes."""


class TopologyFilterParameters(TopologyScorerParameters, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The scorer's parameters, and which level counts as near."""

    min_affinity: Level = Level.HOST


class TopologyAffinityScorer(Scorer[TopologyScorerParameters]):
    """Score 1 on the peer's host, 0.2 in its rack, 0.05 in its zone, 0.02 in its region, else 0.

    Reads: Request.headers, Candidate.labels.
    """

    type_name = "topology-affinity-scorer"
    Parameters = TopologyScorerParameters

    def __init__(self, parameters: TopologyScorerParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._header = self.parameters.peer_topology_header.lower()
        self.has_peer_header = bool(self._header)
        self.read_places(TopologyExtractor())

    def read_places(self, extractor: TopologyExtractor) -> None:
        """Read the endpoints' places from what ``extractor`` knows."""
        self._labels_of, self._names = extractor.labels_of, extractor.parameters.by_level()

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by nearness."""
        peer = read_peer(request.headers.get(self._header, ""))
        if not peer:
            return [0.0] * len(candidates)
        names, labels_of = self._names, self._labels_of
        return [SCORES[common(peer, labels_of(c), names)] for c in candidates]


class TopologyAffinityFilter(Filter[TopologyFilterParameters]):
    """Keep the endpoints that share ``min_affinity`` or a nearer level with the peer.

    All are kept if the peer is unknown, or if none would be left.

    Reads: Request.headers, Candidate.labels.
    """

    type_name = "topology-affinity-filter"
    Parameters = TopologyFilterParameters

    def __init__(self, parameters: TopologyFilterParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._header = self.parameters.peer_topology_header.lower()
        self.has_peer_header = bool(self._header)
        self.read_places(TopologyExtractor())

    def read_places(self, extractor: TopologyExtractor) -> None:
        """Read the endpoints' places from what ``extractor`` knows."""
        near = list(Level).index(self.parameters.min_affinity) + 1
        self._labels_of, self._names = extractor.labels_of, extractor.parameters.by_level()[:near]

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates near the peer, or all of them."""
        peer = read_peer(request.headers.get(self._header, ""))
        if not peer:
            return candidates
        names, labels_of = self._names, self._labels_of
        return [c for c in candidates if common(peer, labels_of(c), names)] or candidates
