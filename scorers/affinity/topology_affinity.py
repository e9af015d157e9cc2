"""Send a request near the endpoint that another picker chose for its first half."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.affinity.topology import Level, TopologyLabels, common, read_peer
from scorers.base import Candidate, Filter, Request, Scorer

SCORES: dict[Level | None, float] = {
    Level.HOST: 1.0,
    Level.RACK: 0.2,
    Level.ZONE: 0.05,
    Level.REGION: 0.02,
    None: 0.0,
}
"""They follow the bandwidth between the two. Source: the Go picker's scorer of the same name."""


class TopologyScorerParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where the peer's place is read, and who knows the endpoints'."""

    peer_topology_header: str = ""
    """Of the request: ``host=...,rack=...,zone=...,region=...``. Without it no peer is ever known."""
    topology_producer_name: str | None = None
    """A ``topology-extractor``; None is the one there is, or the usual labels of Kubernetes."""


class TopologyFilterParameters(TopologyScorerParameters, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The same, and how near is near enough."""

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
        self.knows_peers = bool(self._header)
        self.read_labels(TopologyLabels())

    def read_labels(self, labels: TopologyLabels) -> None:
        """Take the endpoints' places from these."""
        self._names = labels.by_level()

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """One score per candidate, by nearness."""
        peer = read_peer(request.headers.get(self._header, ""))
        if not peer:
            return [0.0] * len(candidates)
        names = self._names
        return [SCORES[common(peer, c.labels, names)] for c in candidates]


class TopologyAffinityFilter(Filter[TopologyFilterParameters]):
    """Keep the endpoints that share the level ``min_affinity``, or a nearer one, with the peer; everything where the
    peer is not known, or where nothing would be kept.

    Reads: Request.headers, Candidate.labels.
    """

    type_name = "topology-affinity-filter"
    Parameters = TopologyFilterParameters

    def __init__(self, parameters: TopologyFilterParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._header = self.parameters.peer_topology_header.lower()
        self.knows_peers = bool(self._header)
        self.read_labels(TopologyLabels())

    def read_labels(self, labels: TopologyLabels) -> None:
        """Take the endpoints' places from these."""
        levels = list(Level)
        self._names = labels.by_level()[: levels.index(self.parameters.min_affinity) + 1]

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those near the peer, or everything."""
        peer = read_peer(request.headers.get(self._header, ""))
        if not peer:
            return candidates
        names = self._names
        return [c for c in candidates if common(peer, c.labels, names)] or candidates
