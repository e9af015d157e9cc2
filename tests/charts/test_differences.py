"""The page of differences from upstream's charts is that of the charts, and has a reason for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.charts import compare, upstream
from tests.charts.compare import Outcome, compared, version_for
from tests.charts.differences import Difference, differences
from tests.charts.guides import FEATURES, GUIDES, Guide
from tests.charts.helm import CHARTS, Object, objects
from tests.charts.reasons import REASONS, reason
from tests.cluster.environment import Unavailable

COMPARED = [guide for guide in (*GUIDES, *FEATURES) if version_for(guide) and guide.name != "objectives"]
IMMUTABLE = {
    "Deployment": ("spec.selector",),
    "StatefulSet": ("spec.selector", "spec.serviceName"),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "Secret": ("type",),
}
"""What the API refuses to change in an object that exists."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("upstream")


@pytest.fixture(scope="module")
def outcome(folder: Path) -> Iterator[Outcome]:
    try:
        yield compared(folder)
    except Unavailable as missing:
        pytest.skip(str(missing))


def test_every_difference_has_a_reason(outcome: Outcome) -> None:
    assert [each for each in sorted(outcome.found) if reason(each) is None] == []


def test_every_reason_has_a_difference(outcome: Outcome) -> None:
    used = {reason(each) for each in outcome.found}
    assert [each for each in REASONS if each not in used] == []


def test_the_page_is_that_of_the_charts(outcome: Outcome) -> None:
    assert compare.PAGE.read_text() == compare.page(outcome), "run `python -m tests.charts.compare`"


def test_upstream_fails_where_the_page_says_so(outcome: Outcome) -> None:
    assert set(outcome.failed) == {"objectives"}


def at(each: Object, path: str) -> object:
    here: object = each
    for key in path.split("."):
        assert isinstance(here, dict)
        here = here[key]
    return here


@pytest.mark.parametrize("guide", COMPARED, ids=lambda guide: guide.name)
def test_a_release_of_upstreams_chart_can_be_upgraded_in_place(guide: Guide, folder: Path) -> None:
    """What is in both has the same immutable fields; what is not is created or deleted as a whole."""
    version = version_for(guide)
    assert version
    try:
        chart = upstream.chart(guide.chart, version, folder)
    except Unavailable as missing:
        pytest.skip(str(missing))
    before, after = (
        {(each["kind"], each["metadata"]["name"]): each for each in objects(where, *guide.arguments)}
        for where in (chart, CHARTS / guide.chart)
    )
    kept = before.keys() & after.keys()
    assert {kind for kind, _ in kept} >= {"Deployment", "Service", "ServiceAccount", "ConfigMap"}
    for kind, name in kept:
        for path in IMMUTABLE.get(kind, ()):
            assert at(before[kind, name], path) == at(after[kind, name], path), f"{kind} {name}: {path} would change"


def test_what_has_an_order_without_meaning_is_no_difference() -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    one: Object = {"kind": "Role", "metadata": {"name": "a"}, "rules": [rule]}
    other = {**one, "rules": [{**rule, "verbs": ["list", "get"]}]}
    assert list(differences([one], [other])) == []
    pod: Object = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"args": ["--v", "1", "--x=2"]}}
    spelt = {**pod, "spec": {"args": ["--x=2", "--v=1"]}}
    assert list(differences([pod], [spelt])) == []


def test_a_difference_has_its_place_and_both_values() -> None:
    one: Object = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"args": ["--v=1"], "x": 1}}
    other: Object = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"args": ["--v=2"]}}
    assert list(differences([one], [other])) == [
        Difference("Pod", "a", "spec.args[--v]", "--v=1", "--v=2"),
        Difference("Pod", "a", "spec.x", "1", "–"),
    ]
    assert list(differences([one], [])) == [Difference("Pod", "a", "", "present", "–")]
