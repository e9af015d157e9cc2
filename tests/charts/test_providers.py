"""The objects of each gateway's maker, of monitoring, and the routes that lead to the pool."""

from __future__ import annotations

from tests.charts.rendering import NAMESPACE, Object, Rendered, pool_values, render

POOL = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llm-d-infpool"}


def of_provider(name: str, settings: Object | None = None, **more: object) -> Rendered:
    return render(
        "inferencepool",
        {**pool_values("router", **more), "provider": {"name": name, **({name: settings} if settings else {})}},
    )


def test_none_adds_no_object() -> None:
    kinds = {each["kind"] for each in of_provider("none").objects}
    assert not kinds & {"HealthCheckPolicy", "GCPBackendPolicy", "DestinationRule", "BackendTrafficPolicy"}


def test_gke_checks_health_at_the_first_port_and_gives_requests_time() -> None:
    made = of_provider("gke", modelServers={"matchLabels": {"a": "b"}, "targetPorts": [{"number": 8200}]})
    health = made.one("HealthCheckPolicy")["spec"]
    assert health["targetRef"] == POOL
    assert health["default"]["config"]["httpHealthCheck"] == {"requestPath": "/health", "port": 8200}
    policy = made.one("GCPBackendPolicy")["spec"]
    assert policy["targetRef"] == POOL
    assert policy["default"] == {"timeoutSec": 300, "logging": {"enabled": True}}


def test_gke_asks_engines_over_grpc_where_they_speak_it() -> None:
    made = of_provider("gke", modelServers={"matchLabels": {"a": "b"}, "protocol": "grpc"})
    assert made.one("HealthCheckPolicy")["spec"]["default"]["config"]["type"] == "GRPC"
    assert made.one("InferencePool")["spec"]["appProtocol"] == "kubernetes.io/h2c"
    assert "vllmgrpc-parser" in made.files["default-plugins.yaml"]


def test_managed_prometheus_reads_with_a_secret_that_its_collector_may_read() -> None:
    for autopilot, collectors in ((False, "gmp-system"), (True, "gke-gmp-system")):
        made = of_provider("gke", {"autopilot": autopilot}, monitoring={"prometheus": {"enabled": True}})
        [endpoint] = made.one("PodMonitoring")["spec"]["endpoints"]
        secret = endpoint["authorization"]["credentials"]["secret"]["name"]
        [rule] = made.one("Role", "llm-d-infpool-metrics-reader-secret-read")["rules"]
        assert rule["resourceNames"] == made.names("Secret") == [secret]
        binding = f"{collectors}:collector:{NAMESPACE}-llm-d-infpool-metrics-reader-secret-read"
        assert made.one("RoleBinding", binding)["subjects"][0]["namespace"] == collectors
        assert not made.of("ServiceMonitor")


def test_a_service_monitor_shows_the_token_of_an_account_that_may_read() -> None:
    made = of_provider("none", monitoring={"prometheus": {"enabled": True, "extraLabels": {"release": "p"}}})
    monitor = made.one("ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "p"
    account = made.one("Secret")["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    assert account == "llm-d-infpool-epp-metrics-reader"
    assert made.names("ServiceAccount") == ["llm-d-infpool-epp", account]
    role = f"llm-d-infpool-{NAMESPACE}-epp-metrics-reader"
    assert made.one("ClusterRole", role)["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    bound = [each["roleRef"]["name"] for each in made.objects if has_subject(each, account)]
    assert bound == [role], "whoever has the token may read the metrics, and nothing else"


def has_subject(each: Object, account: str) -> bool:
    return any(subject["name"] == account for subject in each.get("subjects", ()))


def test_without_authentication_no_reader_is_made() -> None:
    made = of_provider("none", monitoring={"prometheus": {"enabled": True, "auth": {"enabled": False}}})
    assert made.names("ServiceAccount") == ["llm-d-infpool-epp"]
    assert not made.of("Secret")
    assert not made.of("ClusterRole")


def test_istio_trusts_the_pickers_certificate_and_limits_nothing_by_default() -> None:
    given = {"destinationRule": {"trafficPolicy": {"connectionPool": {"http": {"http2MaxRequests": 256000}}}}}
    policy = of_provider("istio", given).one("DestinationRule")["spec"]["trafficPolicy"]
    assert policy["tls"] == {"mode": "SIMPLE", "insecureSkipVerify": True}
    assert policy["connectionPool"]["http"]["http2MaxRequests"] == 256000
    assert policy["connectionPool"]["tcp"]["maxConnections"] == 1000000


def test_the_older_place_of_istios_values_is_read() -> None:
    values = {**pool_values("inferenceExtension"), "provider": {"name": "istio"}}
    values["istio"] = {"destinationRule": {"host": "elsewhere.example"}}
    assert render("inferencepool", values).one("DestinationRule")["spec"]["host"] == "elsewhere.example"


def test_envoy_gateways_limits_are_raised_on_the_route() -> None:
    values = {**pool_values("router"), "provider": {"name": "envoy-ai-gateway"}, "httpRoute": {"create": True}}
    policy = render("inferencepool", values).one("BackendTrafficPolicy")["spec"]
    assert policy["targetRefs"][0]["name"] == "llm-d-infpool"
    assert policy["circuitBreaker"]["maxParallelRequests"] == 1000000


def test_a_route_has_what_the_values_say() -> None:
    route = {
        "create": True,
        "inferenceGatewayName": "llm-d-inference-gateway",
        "inferenceGatewayNamespace": "gateways",
        "requestTimeout": "0s",
        "headerMatches": {"x-team": "a"},
        "baseModel": "qwen",
    }
    spec = render("inferencepool", {**pool_values("router"), "httpRoute": route}).one("HTTPRoute")["spec"]
    [parent], [rule] = spec["parentRefs"], spec["rules"]
    assert (parent["name"], parent["namespace"]) == ("llm-d-inference-gateway", "gateways")
    assert rule["backendRefs"] == [POOL]
    assert rule["timeouts"] == {"request": "0s"}
    headers = {header["name"]: header["value"] for header in rule["matches"][0]["headers"]}
    assert headers == {"X-Gateway-Base-Model-Name": "qwen", "x-team": "a"}


def test_gke_routes_have_no_timeouts_which_it_refuses() -> None:
    values = {**pool_values("inferenceExtension"), "provider": {"name": "gke"}}
    values["experimentalHttpRoute"] = {"enabled": True}
    [rule] = render("inferencepool", values).one("HTTPRoute")["spec"]["rules"]
    assert "timeouts" not in rule
