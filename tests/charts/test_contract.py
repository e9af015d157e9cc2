"""Names, labels, ports, arguments and probes that scripts of other charts' users know."""

from __future__ import annotations

import pytest
import yaml

from tests.charts.rendering import LABELS, NAMESPACE, Values, pool_values, refusal, render, understood

TREES = ("inferenceExtension", "router")
SELECTORS = {
    ("inferencepool", "inferenceExtension"): "inferencepool",
    ("inferencepool", "router"): "llm-d-router-gateway",
    ("standalone", "inferenceExtension"): "inferencepool",
    ("standalone", "router"): "llm-d-router-gateway",
}


@pytest.mark.parametrize(("chart", "tree"), SELECTORS)
def test_the_names_and_selectors_are_those_that_a_release_of_upstream_has(chart: str, tree: str) -> None:
    made = render(chart, pool_values(tree))
    for kind in ("Deployment", "Service", "ServiceAccount"):
        assert "llm-d-infpool-epp" in made.names(kind)
    assert "llm-d-infpool-epp" in made.names("ConfigMap")
    assert made.names("InferencePool") == ["llm-d-infpool"]
    assert made.names("Role") == ["llm-d-infpool-epp-sa", "llm-d-infpool-epp-non-sa"]
    assert made.names("ClusterRole") == [f"llm-d-infpool-{NAMESPACE}-epp"]
    selector = {SELECTORS[chart, tree]: "llm-d-infpool-epp"}
    assert made.workload["spec"]["selector"]["matchLabels"] == selector
    assert made.one("Service", "llm-d-infpool-epp")["spec"]["selector"] == selector
    assert made.workload["spec"]["template"]["metadata"]["labels"].items() >= selector.items()


@pytest.mark.parametrize(
    ("values", "label"),
    [
        (
            {"inferenceExtension": {"endpointsServer": {"createInferencePool": False, "endpointSelector": "app=qwen"}}},
            "epp",
        ),
        (
            {"router": {"inferencePool": {"create": False}, "modelServers": {"matchLabels": LABELS}}},
            "llm-d-router-standalone",
        ),
    ],
)
def test_without_a_pool_the_picker_selects_pods_and_has_fewer_rights(values: Values, label: str) -> None:
    made = render("standalone", values)
    assert made.workload["spec"]["selector"]["matchLabels"] == {label: "llm-d-infpool-epp"}
    assert made.names("Role") == ["llm-d-infpool-epp-sa"]
    assert not made.of("InferencePool")
    assert made.arguments[:4] == ["--endpoint-selector", "app=qwen", "--endpoint-target-ports", "8000"]
    understood(made.arguments)


@pytest.mark.parametrize("tree", TREES)
def test_the_arguments_are_upstreams_and_tierwise_serve_accepts_them(tree: str) -> None:
    made = render("inferencepool", pool_values(tree))
    assert made.arguments == [
        "--pool-name", "llm-d-infpool", "--pool-namespace", NAMESPACE, "--pool-group", "inference.networking.k8s.io",
        "--zap-encoder", "json", "--config-file", "/config/default-plugins.yaml", "--v=2", "--tracing=false",
    ]  # fmt: skip
    understood(made.arguments)


@pytest.mark.parametrize("tree", TREES)
def test_the_service_has_upstreams_ports(tree: str) -> None:
    picker = {"extraServicePorts": [{"name": "http", "port": 80, "targetPort": 8081}]}
    service = render("inferencepool", pool_values(tree, **picker)).one("Service", "llm-d-infpool-epp")
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [
        ("grpc-ext-proc", 9002),
        ("http-metrics", 9090),
        ("http", 80),
    ]


@pytest.mark.parametrize(
    ("replicas", "election", "services"),
    [
        (1, False, ["liveness", "inference-extension"]),
        (3, False, ["liveness", "readiness"]),
        (1, True, ["liveness", "readiness"]),  # with an election the other name is unknown
    ],
)
def test_the_kubelet_asks_upstreams_names_and_restarts_no_picker_for_what_it_lacks(
    replicas: int, election: bool, services: list[str]
) -> None:
    flags = {"ha-enable-leader-election": True} if election else {}
    made = render("inferencepool", pool_values("inferenceExtension", replicas=replicas, flags=flags))
    container = made.container()
    probes = [container[f"{probe}Probe"] for probe in ("liveness", "readiness")]
    assert [probe["grpc"] for probe in probes] == [{"port": 9003, "service": service} for service in services]


def test_several_pickers_elect_one_with_the_rights_for_it() -> None:
    made = render("inferencepool", pool_values("router", epp={"replicas": 3}))
    assert "--ha-enable-leader-election" in made.arguments
    assert "llm-d-infpool-epp-leader-election" in made.names("Role")
    alone = render("inferencepool", pool_values("router"))
    assert "--ha-enable-leader-election" not in alone.arguments
    assert "llm-d-infpool-epp-leader-election" not in alone.names("Role")


def test_the_built_in_configurations_have_the_engine_of_the_values() -> None:
    values = {"inferencePool": {"modelServers": {"matchLabels": LABELS}, "modelServerType": "sglang"}}
    files = render("inferencepool", values).files
    assert set(files) == {"default-plugins.yaml", "payload-agnostic.yaml"}
    for text in files.values():
        plugins = {plugin["type"]: plugin for plugin in yaml.safe_load(text)["plugins"]}
        assert plugins["core-metrics-extractor"]["parameters"] == {"defaultEngine": "sglang"}


def test_a_release_name_of_53_characters_gives_names_that_kubernetes_accepts() -> None:
    release = "r" * 39 + "-" + "s" * 13
    made = render("standalone", pool_values("router", proxy={"mode": "service"}), release=release)
    assert made.names("InferencePool") == [release]
    for each in made.objects:
        name = each["metadata"]["name"]
        assert len(name) <= 63 or each["kind"].startswith("ClusterRole"), name
        assert "--" not in name, name


def test_two_releases_in_a_namespace_share_no_object() -> None:
    values = pool_values(
        "inferenceExtension", monitoring={"prometheus": {"enabled": True}}, replicas=2, sidecar={"enabled": True}
    )
    first, second = (
        {(each["kind"], each["metadata"]["name"]) for each in render("standalone", values, release=name).objects}
        for name in ("one", "two")
    )
    assert not first & second
    assert len(first) > 12


def test_a_mixture_of_both_trees_is_refused_with_the_keys_that_clash() -> None:
    said = refusal("inferencepool", {**pool_values("inferenceExtension", replicas=1), **pool_values("router")})
    assert "router" in said
    assert "inferenceExtension" in said
