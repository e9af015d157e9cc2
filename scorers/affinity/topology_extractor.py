"""Where endpoints are, from the pods and nodes of a Kubernetes cluster.

A pod has the labels of its manifest, which seldom name a place; its node has them. Without a source of objects the
labels of the endpoints are all that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scorers.affinity.topology import TopologyLabels
from scorers.base import Candidate, Extractor


class TopologyExtractor(Extractor[TopologyLabels]):
    """Learns the place of each pod from its labels, then from those of its node, and its host at least by name.

    Reads: Pod and Node objects, Candidate.name, Candidate.labels.
    Source: the Go picker's extractor of this name, which reads the pod only, and falls back to the pod's own hostname,
    so that each pod of a StatefulSet is a host of its own; here that comes after the node's name.
    """

    type_name = "topology-extractor"
    Parameters = TopologyLabels

    def __init__(self, parameters: TopologyLabels | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._labels = [label for _, label in self.parameters.by_level()]
        self._pods: dict[str, tuple[Mapping[str, str], str, str]] = {}  # labels, node, own hostname
        self._on_node: dict[str, set[str]] = {}
        self._nodes: dict[str, Mapping[str, str]] = {}
        self._places: dict[str, Mapping[str, str]] = {}

    def changed(self, item: Mapping[str, Any]) -> None:
        """Learn from a pod or a node; objects of other kinds say nothing about places."""
        if item.get("kind") == "Node":
            self._nodes[_name(item)] = self._of_labels(item)
            self._place_again(_name(item))
        elif item.get("kind") == "Pod":
            self._forget(item)
            key, spec = _key(item), item.get("spec") or {}
            node = spec.get("nodeName") or ""
            self._pods[key] = self._of_labels(item), node, spec.get("hostname") or ""
            self._on_node.setdefault(node, set()).add(key)
            self._place(key)

    def removed(self, item: Mapping[str, Any]) -> None:
        """Forget a pod or a node."""
        if item.get("kind") == "Node":
            self._nodes.pop(_name(item), None)
            self._place_again(_name(item))
        elif item.get("kind") == "Pod":
            self._forget(item)

    def labels_of(self, candidate: Candidate) -> Mapping[str, str]:
        """Return the labels with the endpoint's place: as learned of its pod, else the endpoint's own."""
        if not self._places:
            return candidate.labels
        return self._places.get(candidate.name.rpartition("-rank-")[0], candidate.labels)

    def state(self) -> object:
        """Return how many pods and nodes are known."""
        return {"pods": len(self._pods), "nodes": len(self._nodes)}

    def _of_labels(self, item: Mapping[str, Any]) -> Mapping[str, str]:
        labels = (item.get("metadata") or {}).get("labels") or {}
        return {label: labels[label] for label in self._labels if labels.get(label)}

    def _place(self, key: str) -> None:
        labels, node, hostname = self._pods[key]
        host = {self.parameters.hostname: node or hostname} if node or hostname else {}
        self._places[key] = {**host, **self._nodes.get(node, {}), **labels}

    def _place_again(self, node: str) -> None:
        for key in self._on_node.get(node, ()):
            self._place(key)

    def _forget(self, item: Mapping[str, Any]) -> None:
        key = _key(item)
        before = self._pods.pop(key, None)
        self._places.pop(key, None)
        if before is not None:
            there = self._on_node[before[1]]
            there.discard(key)
            if not there:
                del self._on_node[before[1]]


def _name(item: Mapping[str, Any]) -> str:
    return str((item.get("metadata") or {}).get("name") or "")


def _key(item: Mapping[str, Any]) -> str:
    return f"{(item.get('metadata') or {}).get('namespace') or ''}/{_name(item)}"
