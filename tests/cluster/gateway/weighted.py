"""What Istio's route to several pools lacks: the picker of each.

Istio 1.31 writes one picker into a route, that of the last pool which the rule names, and asks it for every request,
whichever pool the weights have chosen (``buildHTTPDestination`` in ``pilot/pkg/config/kube/gateway/conversion.go``).
Envoy can have a picker for each weighted cluster, and an EnvoyFilter can write such a route before that of Istio.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tests.cluster.workloads import Object

EXT_PROC = "envoy.filters.http.ext_proc"
FIRST_PORT = 54321
"""Of the Services that Istio makes of pools."""
MODES = {
    "request_header_mode": "SEND", "request_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND",
    "response_header_mode": "SEND", "response_body_mode": "FULL_DUPLEX_STREAMED", "response_trailer_mode": "SEND",
}  # fmt: skip
"""As Istio has them for a single pool."""


@dataclass(frozen=True)
class Share:
    """A pool of a rule."""

    pool: str
    picker: str
    """The Service, which has port 9002."""
    weight: int
    fails_open: bool = False


def envoy_filter(gateway: str, namespace: str, route: str, path: str, shares: list[Share]) -> Object:
    """Return the EnvoyFilter for the first rule of the HTTPRoute ``route``, as ``NAMESPACE.NAME``, and its prefix."""
    domain = f"{route.partition('.')[0]}.svc.cluster.local"
    value = {
        "match": {"path_separated_prefix": path},
        "route": {"timeout": "0s", "weighted_clusters": {"clusters": [_cluster(one, domain) for one in shares]}},
    }
    match = {"context": "GATEWAY", "routeConfiguration": {"vhost": {"route": {"name": f"{route}.0"}}}}
    patch = {"operation": "INSERT_BEFORE", "value": value}
    return {
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": {"name": "a-picker-for-each-pool", "namespace": namespace},
        "spec": {
            "workloadSelector": {"labels": {"gateway.networking.k8s.io/gateway-name": gateway}},
            "configPatches": [{"applyTo": "HTTP_ROUTE", "match": match, "patch": patch}],
        },
    }  # fmt: skip


def _cluster(share: Share, domain: str) -> Object:
    service = f"{share.pool}-ip-{hashlib.sha256(share.pool.encode()).hexdigest()[:8]}"
    picker = {"envoy_grpc": {"cluster_name": f"outbound|9002||{share.picker}.{domain}"}}
    overrides = {"failure_mode_allow": share.fails_open, "grpc_service": picker, "processing_mode": MODES}
    return {
        "name": f"outbound|{FIRST_PORT}||{service}.{domain}",
        "weight": share.weight,
        "typed_per_filter_config": {
            EXT_PROC: {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
                "overrides": overrides,
            }
        },
    }
