"""The recipes for gateways: one Gateway and one route, under the names that the guides use."""

from __future__ import annotations

import pytest

from tests.kustomize.kubectl import MANIFESTS, build

RECIPES = sorted(path.name for path in (MANIFESTS / "gateway").iterdir() if path.name != "base")


def test_there_is_a_recipe_for_every_class_of_the_guides() -> None:
    assert RECIPES == [
        "agentgateway", "agentgateway-openshift", "envoy-ai-gateway", "gke-l7-regional-external-managed", "gke-l7-rilb",
        "istio", "kgateway",
    ]  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_a_gateway_of_its_class_and_a_route_to_the_pool(recipe: str) -> None:
    objects = {each["kind"]: each for each in build(MANIFESTS / "gateway" / recipe)}
    gateway, route = objects["Gateway"], objects["HTTPRoute"]
    assert gateway["metadata"]["name"] == "llm-d-inference-gateway"
    assert gateway["spec"]["gatewayClassName"] == recipe.removesuffix("-openshift")
    assert route["metadata"]["name"] == "llm-d-route"
    assert route["spec"]["parentRefs"][0]["name"] == gateway["metadata"]["name"]
    (rule,) = route["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    assert (backend["kind"], backend["name"], backend["port"]) == ("InferencePool", "llm-d-infpool", 8000)
    assert ("timeouts" in rule) == (not recipe.startswith("gke")), "GKE refuses a timeout of 0s"


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_a_gateway_refers_to_is_in_its_recipe(recipe: str) -> None:
    objects = build(MANIFESTS / "gateway" / recipe)
    (gateway,) = (each for each in objects if each["kind"] == "Gateway")
    parameters = gateway["spec"].get("infrastructure", {}).get("parametersRef")
    if parameters:
        assert (parameters["kind"], parameters["name"]) in {(o["kind"], o["metadata"]["name"]) for o in objects}
    for policy in (each for each in objects if each["kind"] == "ClientTrafficPolicy"):
        (target,) = policy["spec"]["targetRefs"]
        assert target["name"] == gateway["metadata"]["name"]
