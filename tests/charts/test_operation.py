"""What an operator relies on: streams end before a pod does, and objects follow the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.charts.rendering import Object, Rendered, notes, pool_values, refusal, render, understood

SERVICE = {"proxy": {"mode": "service"}}


def with_own(own: Object, **router: object) -> Object:
    return {**pool_values("router", **router), "tierwise": own}


def pause(container: Object) -> int:
    found: int = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    return found


@pytest.mark.parametrize("own", [{}, {"drainSeconds": 300}, {"preStopSeconds": 30, "drainSeconds": 200}])
@pytest.mark.parametrize("router", [{}, SERVICE])
def test_envoy_ends_after_the_seconds_for_streams_and_within_the_grace_period(own: Object, router: Object) -> None:
    made = render("standalone", with_own(own, **router))
    pod = made.pod if not router else made.one("Deployment", "llm-d-infpool-proxy")["spec"]["template"]["spec"]
    [envoy] = [each for each in pod["containers"] if each["name"].startswith("envoy")]
    assert pause(envoy) == own.get("preStopSeconds", 5) + own.get("drainSeconds", 60)
    assert pause(envoy) < pod["terminationGracePeriodSeconds"]
    assert pause(made.container()) + drain(made) < made.pod["terminationGracePeriodSeconds"]


def drain(made: Rendered) -> float:
    """Return how long the picker lets its streams end."""
    return understood(made.arguments).drain_timeout_s


def test_the_picker_beside_an_envoy_decides_about_its_last_streams() -> None:
    assert drain(render("standalone", with_own({"drainSeconds": 300}))) == 300
    assert drain(render("inferencepool", with_own({"drainSeconds": 300}))) == 300
    assert drain(render("inferencepool", with_own({}))) == 30


def test_a_grace_period_that_is_too_short_is_refused() -> None:
    values = with_own({"drainSeconds": 100}, epp={"terminationGracePeriodSeconds": 60})
    said = refusal("standalone", values)
    assert "tierwise.drainSeconds 100" in said
    assert "terminationGracePeriodSeconds is 60" in said
    shorter = render("standalone", with_own({}, epp={"terminationGracePeriodSeconds": 40}))
    assert pause(shorter.container("envoy-proxy")) == 35


def test_a_network_policy_holds_for_the_proxys_own_pods() -> None:
    clients = [{"podSelector": {"matchLabels": {"may": "ask"}}}]
    made = render("standalone", with_own({"networkPolicy": {"enabled": True, "clients": clients}}, **SERVICE))
    deployment = made.one("Deployment", "llm-d-infpool-proxy")["spec"]["template"]
    policy = made.one("NetworkPolicy", "llm-d-infpool-proxy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= deployment["metadata"]["labels"].items()
    assert {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]} == {
        8081: clients,
        19001: [{"podSelector": {}}],
    }
    picker = made.one("NetworkPolicy", "llm-d-infpool-epp")["spec"]["ingress"]
    assert policy["podSelector"] in [peer.get("podSelector") for peer in picker[0]["from"]]


def test_the_flag_that_turns_authentication_off_takes_the_rights_with_it() -> None:
    made = render("inferencepool", pool_values("router", epp={"flags": {"metrics-endpoint-auth": False}}))
    assert not made.of("ClusterRole")
    assert not made.of("ClusterRoleBinding")
    assert made.arguments.count("--metrics-endpoint-auth=false") == 1


def test_the_least_number_of_pods_is_not_above_the_greatest() -> None:
    scaling = {"enabled": True, "minReplicas": 9, "maxReplicas": 3}
    said = refusal("inferencepool", pool_values("router", epp={"autoscaling": scaling}))
    assert "minReplicas 9 and maxReplicas 3" in said


def test_notes_tell_of_one_claim_for_several_pickers(tmp_path: Path) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "index"}}
    own = {"indexSnapshot": {"enabled": True, "volume": volume}}
    assert 'claim "index"' in notes("inferencepool", with_own(own, epp={"replicas": 3}), tmp_path)


def test_notes_name_the_gateway_of_the_route_and_its_limit(tmp_path: Path) -> None:
    values = {**pool_values("router"), "httpRoute": {"create": True}}
    said = notes("inferencepool", values, tmp_path)
    assert "attached to the Gateway inference-gateway" in said
    assert "cuts answers after 300s" in said


def test_a_registry_alone_is_where_the_page_of_the_image_pushes_to(tmp_path: Path) -> None:
    values = with_own({"image": {"registry": "r.example"}})
    assert render("inferencepool", values).container()["image"] == "r.example/tierwise:0.1.0"
    assert "No registry" not in notes("inferencepool", values, tmp_path)


def test_notes_tell_of_a_registry_that_is_missing_and_of_a_proxy_that_does_not_run(tmp_path: Path) -> None:
    said = notes("inferencepool", with_own({}, proxy={"replicas": 3}), tmp_path)
    assert "tierwise.image.registry" in said
    assert "router.proxy has no effect" in said
