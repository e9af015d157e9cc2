"""The definitions of other projects in a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import crds
from tests.cluster.control_plane import ControlPlane, control_plane
from tests.cluster.environment import Unavailable


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    try:
        with control_plane(tmp_path_factory.mktemp("control-plane")) as running:
            yield running
    except Unavailable as reason:
        pytest.skip(str(reason))


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
    try:
        crds.install(plane, name)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert kind in served(plane, group)


def test_the_definitions_of_llm_d_are_those_of_the_older_group(plane: ControlPlane) -> None:
    try:
        crds.apply(plane, crds.llm_d())
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert {"InferenceObjective", "InferenceModelRewrite"} <= served(plane, "llm-d.ai")
