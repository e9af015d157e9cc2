"""What `tierwise doctor` is measured by: 24 faults and 4 healthy installations, listed before any rule was written.

Each fault is put into a healthy installation on a real API server (``tests/cluster/test_doctor.py``). It counts as
named if the finding with its cause is there, and an installation as accused if it is healthy and there is any finding.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One thing that is wrong, and how the finding that names it is called."""

    cause: str
    what: str
    complaint: str = ""
    """Where users complained of it; empty for the first half, which the subjects of the checks are taken from."""


FAULTS = (
    Fault("no-definitions", "the definitions of InferencePools are not installed"),
    Fault("pool-in-both-groups", "a pool of the same name is in the older group too"),
    Fault("picker-may-not-list-pods", "the binding of the Role for pods is deleted"),
    Fault("selector-without-pods", "the pool's selector matches no pod"),
    Fault("foreign-pods", "the pool's selector matches a pod of another program too"),
    Fault("port-not-served", "the pool's target port is one that no container declares"),
    Fault("service-without-picker", "the Service of the picker selects no pod"),
    Fault("tls-differs", "the DestinationRule speaks plaintext to a picker that serves TLS"),
    Fault("gateway-not-programmed", "the Gateway's condition Programmed is False"),
    Fault("pool-not-resolved", "the pool's condition ResolvedRefs is False"),
    Fault("engines-differ", "two engines of the pool have caches of different sizes"),
    Fault("cache-above-memory", "an engine's CPU cache is larger than its container's memory limit"),
    Fault("standby-restarted", "the liveness probe asks for the name of ext_proc under election",
          "llm-d/llm-d-router/issues/2900"),
    Fault("configuration-not-in-force", "the ConfigMap has a configuration that the picker refuses",
          "llm-d/llm-d-router/issues/2459"),
    Fault("metrics-not-authorised", "metrics need a token, and the picker may not ask for reviews",
          "llm-d/llm-d-router/issues/2370"),
    Fault("picker-bypassed", "requests arrive at engines, and none at the picker", "istio/istio/issues/59577"),
    Fault("circuit-breaker-low", "the DestinationRule allows 1,024 requests at once", "llm-d/llm-d/issues/1582"),
    Fault("active-ports-unknown", "a pod's active ports are not among the pool's",
          "gateway-api-inference-extension#2562"),
    Fault("picker-reads-other-group", "the picker looks for its pool in the older group",
          "opendatahub-io/kserve/issues/1097"),
    Fault("picker-lacks-rights", "the picker may not list rewrites", "kserve/kserve/issues/5350"),
    Fault("pods-held-by-gates", "a readiness gate that nobody sets keeps a pod out", "llm-d/llm-d-router/issues/2604"),
    Fault("boolean-in-two-words", "a flag is written `--secure-serving false`", "llm-d/llm-d-router/issues/924"),
    Fault("service-port-protocol", "the Service's port does not say that it speaks HTTP/2",
          "kserve/kserve/issues/5331"),
    Fault("route-names-other-group", "the route names the pool in the older group",
          "gateway-api-inference-extension#1541"),
)  # fmt: skip

HEALTHY = {
    "gateway": "the chart inferencepool with Istio's DestinationRule, a Gateway and a route, one picker",
    "elected": "the chart inferencepool with three pickers, of which one leads",
    "standalone": "the chart standalone: a picker with an Envoy of its own",
    "router": "the chart inferencepool by values of the newer tree, with two active pickers and an objective",
}
"""Installations in which nothing is wrong, by name."""
