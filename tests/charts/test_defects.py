"""Defects of the charts that these replace: none of them is repeated. The number is that of the list they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.charts.rendering import LABELS, NAMESPACE, notes, pool_values, refusal, render, understood

OLD, NEW = "inferenceExtension", "router"


def test_01_a_boolean_flag_is_one_argument() -> None:
    made = render("inferencepool", pool_values(OLD, flags={"secure-serving": False, "v": 4}))
    assert "--secure-serving=false" in made.arguments
    assert understood(made.arguments).picker.tls is None


def test_02_names_of_metrics_have_no_quotes_in_them() -> None:
    values = pool_values(OLD, pluginsConfigFile="own.yaml", pluginsCustomConfig={"own.yaml": "kind: X\n"})
    for engine, name in (("sglang", "sglang:num_queue_reqs"), ("trtllm-serve", "trtllm_num_requests_waiting")):
        values["inferencePool"] = {"modelServers": {"matchLabels": LABELS}, "modelServerType": engine}
        made = render("inferencepool", values)
        assert f"--total-queued-requests-metric={name}" in made.arguments
        assert understood(made.arguments).metrics_source.names.waiting == name


@pytest.mark.parametrize(
    ("tree", "group"), [(OLD, "inference.networking.x-k8s.io/v1alpha2"), (NEW, "llm-d.ai/v1alpha2")]
)
def test_03_objectives_render_and_belong_to_the_pool(tree: str, group: str) -> None:
    wanted = [{"name": "high", "priority": 5}, {"name": "low", "priority": -1}]
    values = {**pool_values(OLD), "inferenceObjectives": wanted}
    made = render("inferencepool", values if tree == OLD else pool_values(NEW, inferenceObjectives=wanted))
    found = made.of("InferenceObjective")
    assert [(each["apiVersion"], each["spec"]["priority"]) for each in found] == [(group, 5), (group, -1)]
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llm-d-infpool"}
    assert all(each["spec"]["poolRef"] == pool for each in found)


@pytest.mark.parametrize("tree", [OLD, NEW])
def test_04_who_asks_for_tokens_may_have_them_reviewed(tree: str) -> None:
    made = render("inferencepool", pool_values(tree))
    reviewed = {name for rule in made.one("ClusterRole")["rules"] for name in rule.get("resources", ())}
    assert reviewed == {"tokenreviews", "subjectaccessreviews"}
    off = render("inferencepool", pool_values(tree, monitoring={"prometheus": {"auth": {"enabled": False}}}))
    assert not off.of("ClusterRole")
    assert "--metrics-endpoint-auth=false" in off.arguments


@pytest.mark.parametrize("chart", ["inferencepool", "standalone"])
def test_05_06_the_secret_and_the_proxys_files_have_names_of_the_release(chart: str) -> None:
    values = pool_values(OLD, monitoring={"prometheus": {"enabled": True}})
    made = render(chart, values, release="second")
    credentials = made.one("ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"]
    assert made.names("Secret") == [credentials["name"]] == ["second-epp-metrics-reader"]
    assert all(name.startswith("second-epp") for name in made.names("ConfigMap"))


@pytest.mark.parametrize("chart", ["inferencepool", "standalone"])
def test_07_the_failure_mode_is_that_of_the_pool_and_of_the_proxy(chart: str) -> None:
    made = render(chart, pool_values(OLD, failureMode="FailClose"))
    assert made.one("InferencePool")["spec"]["endpointPickerRef"]["failureMode"] == "FailClose"
    if chart == "standalone":
        assert '"failure_mode_allow": false' in str(made.envoy).replace("'", '"').replace("False", "false")


def test_07_a_pool_of_the_older_group_has_a_failure_mode_too() -> None:
    values = pool_values(OLD, failureMode="FailClose")
    values["inferencePool"] = {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
        "modelServers": {"matchLabels": LABELS},
        "targetPortNumber": 8200,
    }
    made = render("inferencepool", values)
    assert made.one("InferencePool")["spec"] == {
        "targetPortNumber": 8200,
        "selector": LABELS,
        "extensionRef": {"name": "llm-d-infpool-epp", "portNumber": 9002, "failureMode": "FailClose"},
    }
    group = "inference.networking.x-k8s.io"
    assert made.arguments[4:6] == ["--pool-group", group]
    assert made.one("Role", "llm-d-infpool-epp-non-sa")["rules"][0]["apiGroups"] == [group]


def test_08_failclosed_and_a_parser_mean_what_the_page_says(tmp_path: Path) -> None:
    values = pool_values(OLD, failureMode="FailClosed")
    values["inferencePool"] = {"modelServers": {"matchLabels": LABELS}, "parser": "openai-parser"}
    made = render("inferencepool", values)
    assert made.one("InferencePool")["spec"]["endpointPickerRef"]["failureMode"] == "FailClose"
    assert "openai-parser" in made.files["default-plugins.yaml"]
    assert "FailClosed is written as FailClose" in notes("inferencepool", values, tmp_path)


def test_09_the_host_of_the_destination_rule_has_the_clusters_domain() -> None:
    values = pool_values(NEW, clusterDomain="corp.example")
    rule = render("inferencepool", {**values, "provider": {"name": "istio"}}).one("DestinationRule")
    assert rule["spec"]["host"] == f"llm-d-infpool-epp.{NAMESPACE}.svc.corp.example"


def configured(text: str) -> dict[str, object]:
    return pool_values(NEW, epp={"pluginsConfigFile": "own.yaml", "pluginsCustomConfig": {"own.yaml": text}})


def test_10_what_takes_a_restart_changes_the_pods_and_nothing_else_does() -> None:
    scorers = "kind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n"
    plain, weighted, watching = (
        render("inferencepool", configured(text)).annotations["checksum/read-at-start"]
        for text in (
            scorers,
            f"{scorers}- type: kv-cache-utilization-scorer\n",
            f"{scorers}- type: metrics-data-source\n  parameters: {{path: /m}}\n",
        )
    )
    assert plain == weighted
    assert plain != watching


def test_10_a_changed_envoy_replaces_the_pods_that_run_it() -> None:
    first, second = (
        render("standalone", pool_values(NEW, proxy={"failOpen": value})).annotations["checksum/proxy"]
        for value in (True, False)
    )
    assert first != second


@pytest.mark.parametrize("name", ["Istoi", "kgateway", "gkee"])
def test_11_an_unknown_provider_is_refused(name: str) -> None:
    said = refusal("inferencepool", {**pool_values(NEW), "provider": {"name": name}})
    assert "agentgateway" in said


def test_11_agentgateway_is_a_provider_and_notes_say_what_it_needs(tmp_path: Path) -> None:
    values = {**pool_values(NEW), "provider": {"name": "agentgateway"}}
    assert "agentgateway needs no object beside the pool" in notes("inferencepool", values, tmp_path)


def test_12_the_seeds_command_for_gke_monitors_the_pods(tmp_path: Path) -> None:
    command = ("--set", "provider.name=gke", "--set", "inferenceExtension.monitoring.gke.enable=true")
    made = render("inferencepool", pool_values(OLD), *command)
    assert made.names("PodMonitoring") == ["llm-d-infpool"]
    assert "llm-d-infpool-metrics-reader-secret" in made.names("Secret")
    assert "monitoring.gke.enable is read as gke.enabled" in notes(
        "inferencepool", pool_values(OLD), tmp_path, *command
    )


@pytest.mark.parametrize(
    "path", ["tracing.enabled", "monitoring.prometheus.enabled", "monitoring.prometheus.auth.enabled"]
)
def test_13_a_text_is_no_boolean(path: str) -> None:
    for tree in (OLD, NEW):
        said = refusal("inferencepool", pool_values(tree), "--set-string", f"{tree}.{path}=false")
        assert "boolean" in said


def test_14_the_envoy_has_where_to_go_without_a_picker_and_ignores_the_clients_choice() -> None:
    envoy = render("standalone", pool_values(NEW)).envoy
    [clients] = [each for each in envoy["static_resources"]["listeners"] if each["name"] == "clients"]
    manager = clients["filter_chains"][0]["filters"][0]["typed_config"]
    mutations = manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"]
    assert {"remove": "x-gateway-destination-endpoint"} in mutations
    [endpoints] = [each for each in envoy["static_resources"]["clusters"] if each["name"] == "endpoints"]
    assert endpoints["type"] == "STRICT_DNS"
    address = endpoints["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    assert address == {"address": f"llm-d-infpool-endpoints.{NAMESPACE}.svc.cluster.local.", "port_value": 8000}
    service = render("standalone", pool_values(NEW)).one("Service", "llm-d-infpool-endpoints")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == LABELS


def test_15_a_value_in_the_wrong_place_is_refused() -> None:
    said = refusal("inferencepool", {**pool_values(OLD), "replicas": 3})
    assert "replicas" in said


@pytest.mark.parametrize("tree", [OLD, NEW])
def test_16_the_envoy_logs_warnings(tree: str) -> None:
    made = render("standalone", pool_values(tree))
    [proxy] = [each for each in made.pod["containers"] if each["name"] != "epp"]
    assert proxy["args"][2:4] == ["--log-level", "warn"]
