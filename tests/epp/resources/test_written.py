"""Specs of objectives and rewrites: what they mean, and a sentence for each that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from epp.errors import ConfigError
from epp.kube.groups import GROUP, OLD_GROUP
from epp.picking.model_rewrites import Rule
from epp.resources.written import PoolName, priority_of, refers_to, rules_of
from tests.epp.resources.objects import POOL, REF, raw, rule

LEGACY_POOL = PoolName("pool", (OLD_GROUP,))


@pytest.mark.parametrize(
    ("spec", "pool", "refers"),
    [
        (REF, POOL, True),
        ({"poolRef": {"name": "pool"}}, POOL, True),
        ({"poolRef": {"name": "pool"}}, LEGACY_POOL, False),
        ({"poolRef": {"name": "pool", "group": "inference.networking.x-k8s.io"}}, LEGACY_POOL, True),
        ({"poolRef": {"name": "pool", "group": "inference.networking.x-k8s.io"}}, POOL, False),
        ({"poolRef": {"name": "pool", "group": OLD_GROUP}}, PoolName("pool", (GROUP, OLD_GROUP)), True),
        ({"poolRef": {"name": "pool", "group": "apps"}}, PoolName("pool", (GROUP, OLD_GROUP)), False),
        ({"poolRef": {"name": "other"}}, POOL, False),
        ({"poolRef": {"name": "pool", "kind": "Service"}}, POOL, False),
        ({"poolRefs": [{"name": "other"}, {"name": "pool"}]}, POOL, True),
        ({"poolRef": {"name": "other"}, "poolRefs": [{"name": "pool"}]}, POOL, True),
        ({"poolRef": None, "poolRefs": None}, POOL, False),
        ({"poolRefs": []}, POOL, False),
        ({"poolRefs": [None]}, POOL, False),
        ({}, POOL, False),
        (None, POOL, False),
        ("text", POOL, False),
    ],
)
def test_an_object_is_of_the_pools_that_it_names_by_name_and_group(spec: Any, pool: PoolName, refers: bool) -> None:
    assert refers_to(raw(spec), pool) is refers


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        (REF, 0),
        ({"priority": None}, 0),
        ({"priority": 2147483647}, 2147483647),
        ({"priority": -2147483648, "criticality": "of a newer release"}, -2147483648),
    ],
)
def test_a_priority_is_an_int32_and_0_where_it_is_absent(spec: dict[str, Any], priority: int) -> None:
    assert priority_of(raw(spec)) == priority


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"priority": 2147483648}, "spec.priority: 2147483648 is not from -2147483648 to 2147483647"),
        ({"priority": -2147483649}, "spec.priority: -2147483649 is not from"),
        ({"priority": 1 << 70}, "spec.priority: "),
        ({"priority": "high"}, "spec.priority: expected int"),
        (None, "spec: expected object"),
    ],
)
def test_a_priority_that_is_no_int32_is_refused(spec: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        priority_of(raw(spec))
    assert str(caught.value).startswith(sentence)


def test_rules_are_those_of_the_spec_and_the_first_of_the_list_has_a_model() -> None:
    spec = {
        "rules": [
            rule(("a", 9), ("b", 1), to="m"),
            rule("c", to="m"),
            {
                "matches": [{"model": {"value": "n"}}, {"model": {"value": "o", "type": None}}],
                "targets": [{"modelRewrite": "d"}],
            },
            {"matches": None, "targets": [{"modelRewrite": "all", "weight": None}]},
            {"matches": [], "targets": [{"modelRewrite": "never"}]},
        ],
        "statusOfANewerRelease": {},
    }  # fmt: skip
    first, some, everything = Rule("r", ("a", "b"), (9, 1)), Rule("r", ("d",), (1,)), Rule("r", ("all",), (1,))
    assert rules_of("r", raw(spec)) == {"m": first, "n": some, "o": some, None: everything}


def test_weight_0_and_a_missing_weight_among_others_are_never_chosen() -> None:
    targets = [{"modelRewrite": "a", "weight": 1}, {"modelRewrite": "b"}, {"modelRewrite": "c", "weight": 0}]
    assert rules_of("r", raw({"rules": [{"targets": targets}]}))[None].weights == (1, 0, 0)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({}, "spec.rules: empty; write a rule, or delete the rewrite"),
        ({"rules": None}, "spec.rules: empty; write a rule"),
        ({"rules": []}, "spec.rules: empty; write a rule"),
        ({"rules": [{}]}, "spec.rules[0].targets: empty; write at least one modelRewrite"),
        ({"rules": [rule("a"), {"targets": None}]}, "spec.rules[1].targets: empty; write at least one"),
        ({"rules": [{"targets": []}]}, "spec.rules[0].targets: empty; write at least one"),
        ({"rules": [rule(("a", 0))]}, "spec.rules[0].targets: no target has a weight above 0, so none is ever chosen"),
        ({"rules": [rule(("a", -1))]}, "spec.rules[0].targets[0].weight: -1 is not from 0 to 1,000,000"),
        ({"rules": [rule(("a", 1000001))]}, "spec.rules[0].targets[0].weight: 1000001 is not from 0 to 1,000,000"),
        ({"rules": [rule("")]}, "spec.rules[0].targets[0].modelRewrite: empty; write a model's name"),
        ({"rules": [rule("m" * 1025)]}, "spec.rules[0].targets[0].modelRewrite: 1,025 characters"),
        (
            {"rules": [{"matches": [{"model": {"value": ""}}], **rule("a")}]},
            "spec.rules[0].matches[0].model.value: empty; write a model's name",
        ),
        ({"rules": [{"matches": [None], **rule("a")}]}, "spec.rules[0].matches[0]: expected object, got null"),
        ({"rules": [{"matches": [{"model": None}], **rule("a")}]}, "spec.rules[0].matches[0]: "),
        (
            {"rules": [{"matches": [{"model": {"value": "m"}, "headers": []}], **rule("a")}]},
            "spec.rules[0].matches[0].headers: unknown field",
        ),
        (
            {"rules": [{"matches": [{"model": {"value": "m", "type": "Prefix"}}], **rule("a")}]},
            "spec.rules[0].matches[0].model.type: ",
        ),
        (
            {"rules": [{"matches": [{"model": {"value": f"m{n}"}} for n in range(1001)], **rule("a")}]},
            "spec.rules: 1,001 models, and one rewrite has 1,000 at most; write several",
        ),
        ({"rules": [rule("a", "b")] * 501}, "spec.rules: 1,002 targets, and one rewrite has 1,000 at most"),
        ({"rules": [{}] * 1001}, "spec.rules: 1,001 rules, and one rewrite has 1,000 at most"),
        ({"padding": "x" * (1 << 18)}, "spec: 262,158 bytes, and 262,144 are read at most; write several objects"),
        ({"rules": {"targets": 1}}, "spec.rules: expected array"),
        ([], "spec: expected object"),
    ],
)
def test_a_rewrite_that_cannot_be_followed_is_refused_by_its_key_path(spec: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules_of("r", raw(spec))
    assert str(caught.value).startswith(sentence)
