"""Images, security, availability, scaling and further objects; the values that are refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.charts.helm import ROOT
from tests.charts.rendering import Object, Values, notes, pool_values, refusal, render, understood

UPSTREAMS = (
    {"registry": "ghcr.io", "repository": "llm-d/llm-d-inference-scheduler", "tag": "v0.8.0"},
    {"hub": "registry.k8s.io/gateway-api-inference-extension", "name": "epp", "tag": "v1.2.0-rc.1"},
    {"registry": "ghcr.io/llm-d", "repository": "llm-d-router-endpoint-picker", "tag": "v0.9.0"},
)


def own(**values: object) -> Object:
    return {**pool_values("router"), "tierwise": values}


@pytest.mark.parametrize("image", UPSTREAMS, ids=lambda image: image["tag"])
def test_another_projects_picker_is_replaced_and_notes_name_it(image: dict[str, str], tmp_path: Path) -> None:
    values = pool_values("inferenceExtension", image=image)
    assert render("inferencepool", values).container()["image"] == "tierwise/tierwise:0.1.0"
    assert f":{image['tag']} is another picker and is replaced" in notes("inferencepool", values, tmp_path)


def test_a_literal_image_runs_as_it_is() -> None:
    made = render("inferencepool", pool_values("inferenceExtension", image={**UPSTREAMS[0], "literal": True}))
    assert made.container()["image"] == "ghcr.io/llm-d/llm-d-inference-scheduler:v0.8.0"
    assert "command" not in made.container()
    assert "initContainers" not in made.pod


@pytest.mark.parametrize(
    ("given", "image"),
    [
        ({"registry": "r.example"}, "r.example/tierwise:0.1.0"),
        ({"tag": "dev"}, "tierwise/tierwise:dev"),
        ({"registry": "r.example", "repository": "team/tierwise", "tag": "2"}, "r.example/team/tierwise:2"),
        ({"repository": "team/tierwise", "digest": "sha256:0a"}, "team/tierwise@sha256:0a"),
    ],
)
def test_an_image_of_ones_own_is_kept(given: dict[str, str], image: str) -> None:
    assert render("inferencepool", pool_values("router", epp={"image": given})).container()["image"] == image


@pytest.mark.parametrize("chart", ["inferencepool", "standalone"])
def test_no_container_has_a_user_or_may_more_than_the_restricted_standard(chart: str) -> None:
    pod = render(chart, pool_values("router")).pod
    for container in (*pod["containers"], *pod["initContainers"]):
        security = container["securityContext"]
        assert not security["allowPrivilegeEscalation"]
        assert security["runAsNonRoot"]
        assert security["readOnlyRootFilesystem"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "runAsUser" not in {**security, **pod.get("securityContext", {})}


@pytest.mark.parametrize(
    ("values", "strategy"),
    [
        (pool_values("router"), {"maxSurge": 1, "maxUnavailable": 0}),
        (pool_values("router", epp={"replicas": 3}), {"maxSurge": "100%", "maxUnavailable": 2}),
        (
            pool_values("router", epp={"flags": {"ha-enable-leader-election": True}}),
            {"maxSurge": "100%", "maxUnavailable": 0},
        ),
        (
            {**pool_values("router", epp={"replicas": 3}), "tierwise": {"highAvailability": "active"}},
            {"maxSurge": 1, "maxUnavailable": 0},
        ),
    ],
)
def test_a_new_pod_is_there_before_an_old_one_ends(values: Values, strategy: Object) -> None:
    made = render("inferencepool", values)
    assert made.workload["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": strategy}
    assert made.pod["terminationGracePeriodSeconds"] == 130
    assert made.container()["lifecycle"]["preStop"]["sleep"]["seconds"] in (5, 15)


@pytest.mark.parametrize(("replicas", "waits"), [(1, "rollout status"), (3, "--for=condition=Available")])
def test_the_notes_have_a_command_that_waits_and_ends(replicas: int, waits: str, tmp_path: Path) -> None:
    said = notes("inferencepool", pool_values("router", epp={"replicas": replicas}), tmp_path)
    (command,) = [line for line in said.splitlines() if "rollout" in line or "wait" in line]
    assert command.startswith("  kubectl -n ")
    assert "deployment/llm-d-infpool-epp" in command
    assert waits in command


def test_a_claim_for_the_snapshot_is_held_by_one_pod_at_a_time() -> None:
    claim = {"persistentVolumeClaim": {"claimName": "index"}}
    made = render("inferencepool", own(indexSnapshot={"enabled": True, "interval": "30s", "volume": claim}))
    assert made.workload["spec"]["strategy"] == {"type": "Recreate"}
    assert {"name": "index-snapshot", **claim} in made.pod["volumes"]
    assert understood(made.arguments).picker.snapshot.interval_s == 30


def test_active_pickers_elect_none_and_scale() -> None:
    scaled = {"enabled": True, "minReplicas": 2, "maxReplicas": 6, "targetMemoryUtilizationPercentage": 60}
    made = render("inferencepool", pool_values("router", epp={"autoscaling": scaled}))
    assert "--ha-enable-leader-election" not in made.arguments
    assert "replicas" not in made.workload["spec"]
    scaler = made.one("HorizontalPodAutoscaler")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 6)
    assert {metric["resource"]["name"] for metric in scaler["metrics"]} == {"cpu", "memory"}
    assert made.container()["readinessProbe"]["grpc"]["service"] == "readiness"


def test_a_proxy_with_pods_of_its_own_scales_apart() -> None:
    proxy = {"mode": "service", "replicas": 3, "autoscaling": {"enabled": False}}
    made = render("standalone", pool_values("router", proxy=proxy))
    assert [each["name"] for each in made.pod["containers"]] == ["epp"]
    deployment = made.one("Deployment", "llm-d-infpool-proxy")["spec"]
    assert deployment["replicas"] == 3
    assert deployment["template"]["spec"]["containers"][0]["name"] == "envoy-proxy"
    service = made.one("Service", "llm-d-infpool-proxy")["spec"]
    assert service["selector"] == deployment["selector"]["matchLabels"]
    assert [port["port"] for port in service["ports"]] == [8081]
    assert "http" not in {port["name"] for port in made.one("Service", "llm-d-infpool-epp")["spec"]["ports"]}


def test_a_network_policy_names_who_may_connect_to_which_port() -> None:
    gateways = [{"namespaceSelector": {"matchLabels": {"team": "edge"}}}]
    made = render("inferencepool", own(networkPolicy={"enabled": True, "gateways": gateways}))
    rules = {
        tuple(port["port"] for port in rule["ports"]): rule.get("from")
        for rule in made.one("NetworkPolicy")["spec"]["ingress"]
    }
    assert rules == {(9002, 9003): gateways, (9090,): [{"podSelector": {}}]}


def test_a_budget_is_for_pickers_that_are_all_ready() -> None:
    values = {**pool_values("router", epp={"replicas": 2}), "tierwise": {"podDisruptionBudget": {"enabled": True}}}
    assert "highAvailability=active" in refusal("inferencepool", values)
    made = render("inferencepool", values, "--set", "tierwise.highAvailability=active")
    assert made.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_pods_are_placed_as_the_values_say() -> None:
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    values = own(
        topologySpreadConstraints=spread,
        priorityClassName="high",
        imagePullSecrets=[{"name": "pull"}],
        nodeSelector={"a": "b"},
        podLabels={"team": "x"},
    )
    made = render("inferencepool", values)
    assert made.pod["priorityClassName"] == "high"
    assert made.pod["imagePullSecrets"] == [{"name": "pull"}]
    assert made.pod["nodeSelector"] == {"a": "b"}
    [constraint] = made.pod["topologySpreadConstraints"]
    assert constraint["labelSelector"]["matchLabels"] == made.workload["spec"]["selector"]["matchLabels"]
    assert made.workload["spec"]["template"]["metadata"]["labels"]["team"] == "x"


def test_further_objects_are_maps_or_texts() -> None:
    more = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}}
    made = render("inferencepool", own(extraObjects=[more, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"]))
    assert made.of("ConfigMap", "more")
    assert made.of("Secret", "s")


def test_the_tokenizer_is_a_container_beside_the_picker() -> None:
    tokenizer = {"enabled": True, "modelName": "Qwen/Qwen3-32B", "extraArgs": ["--max-model-len=8192"]}
    container = render("inferencepool", pool_values("router", tokenizer=tokenizer)).container("vllm-render")
    assert container["command"] == ["vllm", "launch", "render"]
    assert container["args"] == ["Qwen/Qwen3-32B", "--port=8000", "--max-model-len=8192"]


def test_traces_go_where_the_values_say() -> None:
    tracing = {"enabled": True, "otelExporterEndpoint": "http://otel:4317", "sampling": {"samplerArg": "0.05"}}
    made = render("inferencepool", pool_values("router", tracing=tracing))
    environment = {each["name"]: each.get("value") for each in made.container()["env"]}
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://otel:4317"
    assert environment["OTEL_TRACES_SAMPLER_ARG"] == "0.05"
    assert "--tracing=true" in made.arguments


def test_the_picker_as_it_will_run_is_checked_before_it_starts_and_by_helm_test() -> None:
    made = render("inferencepool", pool_values("router", epp={"flags": {"v": 4}}, tracing={"enabled": True}))
    [first] = made.pod["initContainers"]
    test = made.one("Pod")
    for container in (first, test["spec"]["containers"][0]):
        assert container["command"] == made.container()["command"]
        assert container["args"] == [*made.arguments, "--check"]
        assert container["env"] == made.container()["env"], "traces and the pod's name are settings, too"
        assert understood(container["args"]).check
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"inferenceExtension": {"replicas": 1}}, "inferencePool.modelServers.matchLabels is missing"),
        ({"router": {"epp": {"replicas": 1}}}, "router.modelServers.matchLabels is missing"),
        (pool_values("router", latencyPredictor={"enabled": True}), "latencyPredictor"),
        (pool_values("router", epp={"pluginsConfigFile": "none.yaml"}), "there is no such file"),
        (
            pool_values("router", epp={"pluginsConfigFile": "a", "pluginsCustomConfig": {"a": "]"}}),
            "the configuration a is not YAML",
        ),
        (pool_values("router", modelServers={"targetPorts": [{"number": n} for n in range(1, 10)]}), "at most 8"),
        (pool_values("router", tokenizer={"enabled": True}), "modelName is missing"),
        (pool_values("router", inferenceObjectives=[{"name": "a"}, {"name": "a"}]), "twice"),
        (
            pool_values("router", epp={"autoscaling": {"enabled": True}, "flags": {"ha-enable-leader-election": True}}),
            "needs pickers that are all active",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(values: Values, sentence: str) -> None:
    if "router" in values and "matchLabels is missing" not in sentence:
        assert sentence in refusal("inferencepool", values, "--set", "router.modelServers.matchLabels.app=qwen")
    else:
        assert sentence in refusal("inferencepool", values)


def test_the_standalone_chart_refuses_what_its_envoy_cannot_be() -> None:
    old = pool_values("router", proxy={"image": "docker.io/envoyproxy/envoy:distroless-v1.33.2"})
    assert "1.34" in refusal("standalone", old)
    assert "agentgateway" in refusal("standalone", pool_values("router", proxy={"proxyType": "agentgateway"}))


@pytest.mark.parametrize(("tree", "above"), [("inferenceExtension", "inferenceExtension"), ("router", "router.epp")])
def test_a_configuration_of_the_repository_is_a_file_in_the_values(tree: str, above: str) -> None:
    path = ROOT / "manifests" / "config" / "cost.yaml"
    made = render(
        "inferencepool",
        pool_values(tree),
        "--set-file",
        f"{above}.pluginsCustomConfig.cost\\.yaml={path}",
        "--set",
        f"{above}.pluginsConfigFile=cost.yaml",
    )
    assert made.files["cost.yaml"] == path.read_text()
    assert made.arguments[made.arguments.index("--config-file") + 1] == "/config/cost.yaml"
