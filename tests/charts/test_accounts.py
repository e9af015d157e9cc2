"""The accounts, rights, names and places of a release: its own, those of others, and those of two releases beside."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.charts.helm import CHARTS
from tests.charts.rendering import NAMESPACE, Object, Rendered, pool_values, refusal, render, run

TOPOLOGY = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: k8s-notification-source, name: nodes, parameters: {version: v1, kind: Node}}
  - {type: topology-extractor}
  - {type: topology-affinity-scorer, parameters: {peerTopologyHeader: x-peer-topology}}
dataLayer:
  sources: [{pluginRef: nodes, extractors: [{pluginRef: topology-extractor}]}]
"""
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LONG = "a-team-with-a-long-name-serves-a-large-model"


def own(values: Object, **router: object) -> Object:
    return {**pool_values("router", **router), "tierwise": values}


def subjects(made: Rendered) -> set[str]:
    return {one["name"] for each in made.objects for one in each.get("subjects", ())}


def test_the_account_has_the_annotations_and_the_name_of_the_values() -> None:
    annotations = {"iam.gke.io/gcp-service-account": "picker@project"}
    made = render("inferencepool", own({"serviceAccount": {"name": "mine", "annotations": annotations}}))
    assert made.one("ServiceAccount")["metadata"]["name"] == made.pod["serviceAccountName"] == "mine"
    assert made.one("ServiceAccount")["metadata"]["annotations"] == annotations
    assert subjects(made) == {"mine"}


def test_an_account_that_exists_gets_the_rights_and_is_not_made() -> None:
    made = render("standalone", own({"serviceAccount": {"create": False, "name": "theirs"}}))
    assert not made.of("ServiceAccount")
    assert made.pod["serviceAccountName"] == "theirs"
    assert subjects(made) == {"theirs"}


def test_an_account_that_exists_needs_its_name() -> None:
    assert "tierwise.serviceAccount.name is empty" in refusal("standalone", own({"serviceAccount": {"create": False}}))


@pytest.mark.parametrize(
    ("config", "rights", "reads"),
    [("", {}, False), (TOPOLOGY, {}, True), ("", {"readNodes": True}, True), (TOPOLOGY, {"readNodes": False}, False)],
)
def test_nodes_are_read_where_the_configuration_or_a_value_says_so(config: str, rights: Object, reads: bool) -> None:
    files = {"pluginsConfigFile": "own.yaml", "pluginsCustomConfig": {"own.yaml": config}} if config else {}
    made = render("inferencepool", own({"rights": rights}, epp=files))
    name = f"llm-d-infpool-{NAMESPACE}-epp-nodes"
    rules = [rule for each in made.of("ClusterRole") for rule in each["rules"] if "nodes" in rule.get("resources", ())]
    assert rules == ([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}] if reads else [])
    assert [each["roleRef"]["name"] for each in made.of("ClusterRoleBinding", name)] == ([name] if reads else [])


@pytest.mark.parametrize("release", ["a.b", "my-pool.v1.2", LONG, f"{LONG}.x", "a" * 53])
def test_every_release_name_makes_names_that_kubernetes_takes(release: str) -> None:
    made = render("standalone", pool_values("router", proxy={"mode": "service"}), release=release)
    for each in made.of("Service"):
        assert SERVICE_NAME.fullmatch(each["metadata"]["name"]), each["metadata"]["name"]
    for each in made.objects:
        assert all(len(value) <= 63 for value in each["metadata"].get("labels", {}).values())
    assert made.one("InferencePool")["metadata"]["name"] == release, "routes name the pool"
    assert made.arguments[:2] == ["--pool-name", release]


def test_releases_whose_names_are_alike_have_no_object_in_common() -> None:
    releases = ("a-b", "a.b", f"{LONG}-one", f"{LONG}-two", f"{LONG}.one", LONG[:40])
    every = [
        {(each["kind"], each["metadata"]["name"]) for each in render("standalone", own({}), release=release).objects}
        for release in releases
    ]
    assert not [one & other for one, other in itertools.combinations(every, 2) if one & other]


def test_a_name_that_other_charts_do_not_cut_is_kept() -> None:
    release = LONG[:39] + "x"
    assert f"{release}-epp" in render("inferencepool", pool_values("router"), release=release).names("Deployment")


def constraints(made: Rendered) -> list[Object]:
    found: list[Object] = made.pod.get("topologySpreadConstraints", [])
    return found


def test_several_pickers_are_spread_where_there_is_room() -> None:
    assert constraints(render("inferencepool", pool_values("router"))) == []
    made = render("inferencepool", pool_values("router", epp={"replicas": 2}))
    assert [each["topologyKey"] for each in constraints(made)] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    for each in constraints(made):
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"
        assert each["labelSelector"]["matchLabels"] == made.workload["spec"]["selector"]["matchLabels"]
    assert "topologySpreadConstraints" not in made.one("Pod")["spec"], "the test of the release is one pod"
    assert constraints(render("inferencepool", own({"topologySpreadConstraints": []}, epp={"replicas": 2}))) == []


def test_the_proxys_own_pods_are_spread_as_well() -> None:
    made = render("standalone", pool_values("router", proxy={"mode": "service"}))
    proxy = made.one("Deployment", "llm-d-infpool-proxy")["spec"]
    for each in proxy["template"]["spec"]["topologySpreadConstraints"]:
        assert each["labelSelector"] == proxy["selector"]


CLAIM = {"persistentVolumeClaim": {"claimName": "index"}}


@pytest.mark.parametrize(
    ("snapshot", "router", "group"),
    [
        ({}, {}, None),
        ({"volume": CLAIM}, {}, 65532),
        ({"volume": {"emptyDir": {}}}, {}, None),
        ({"volume": CLAIM, "fsGroup": 7}, {}, 7),
        ({"volume": CLAIM, "fsGroup": 0}, {}, None),
        ({"volume": CLAIM}, {"epp": {"podSecurityContext": {"fsGroup": 9}}}, 9),
    ],
)
def test_the_snapshots_volume_belongs_to_a_group_of_the_picker(
    snapshot: Object, router: Object, group: int | None
) -> None:
    made = render("inferencepool", own({"indexSnapshot": {"enabled": True, **snapshot}}, **router))
    assert made.pod.get("securityContext", {}).get("fsGroup") == group
    assert "runAsUser" not in made.pod.get("securityContext", {})


def test_openshift_chooses_the_group_itself() -> None:
    values = own({"indexSnapshot": {"enabled": True, "volume": CLAIM}})
    assert "securityContext" not in render("inferencepool", values, "--api-versions=security.openshift.io/v1").pod


@pytest.mark.parametrize("chart", ["inferencepool", "standalone", "modelserver"])
def test_a_kubernetes_that_is_too_old_is_refused_by_helm(chart: str) -> None:
    done = run(CHARTS / chart, {}, "--kube-version=1.26.9", release="old")
    assert "1.27" in done.stderr
    keys = [
        line.partition(":")[0] for line in (CHARTS / chart / "Chart.yaml").read_text().splitlines() if line[0] > " "
    ]
    assert len(keys) == len(set(keys)), "a strict reader of YAML refuses a key that is there twice"
