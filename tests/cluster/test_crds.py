"""The definitions of other projects in a real API server."""

from __future__ import annotations

import pytest

from tests.cluster import crds
from tests.cluster.control_plane import ControlPlane


def served(plane: ControlPlane, group: str) -> set[str]:
    versions = plane.request("GET", f"/apis/{group}")["versions"]
    lists = (plane.request("GET", f"/apis/{one['groupVersion']}")["resources"] for one in versions)
    return {resource["kind"] for one in lists for resource in one}


@pytest.mark.parametrize(
    ("name", "group", "kind"),
    [
        *((name, "inference.networking.k8s.io", "InferencePool") for name in crds.SETS if name.startswith("inference")),
        ("gateway-api", "gateway.networking.k8s.io", "HTTPRoute"),
        ("prometheus-operator", "monitoring.coreos.com", "ServiceMonitor"),
        ("istio", "networking.istio.io", "DestinationRule"),
        ("envoy-gateway", "gateway.envoyproxy.io", "ClientTrafficPolicy"),
    ],
)
def test_a_set_of_definitions_is_served(plane: ControlPlane, name: str, group: str, kind: str) -> None:
    crds.install(plane, name)
    assert kind in served(plane, group)


def test_the_definitions_of_llm_d_are_those_of_the_older_group(plane: ControlPlane) -> None:
    crds.apply(plane, crds.llm_d())
    assert {"InferenceObjective", "InferenceModelRewrite"} <= served(plane, "llm-d.ai")
