"""The outcome of all objects is that of a naive recomputation, whatever the order of events."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import decode

from epp.kube.objects_inference import GROUPS, InferenceObject, NumberedMetadata
from epp.picking.model_rewrites import Rule
from epp.resources.kept import KeptKind, ObjectName
from epp.resources.verdict import of_objective, of_rewrite
from epp.resources.written import priority_of, refers_to, rules_of
from tests.epp.resources.objects import LEGACY, LLM_D, POOL, REF, item, raw, rule

NAMES, MODELS, TIMES = "ab", ("m", "n", None), ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
OTHER = {"poolRef": {"name": "other"}}


class Event(NamedTuple):
    """What happens to one object: it is put, or (without a spec) deleted."""

    name: str
    group: int
    created: str
    spec: dict[str, Any] | None


SPECS = st.one_of(
    st.builds(
        lambda rules: {**REF, "rules": rules},
        st.lists(st.builds(lambda to, t: rule(t, to=to), st.sampled_from(MODELS), st.sampled_from("xy")), min_size=1),
    ),
    st.just({**REF, "rules": []}),
    st.just({**OTHER, "rules": [rule("x")]}),
    st.none(),
)
EVENTS = st.lists(st.builds(Event, st.sampled_from(NAMES), st.integers(0, 1), st.sampled_from(TIMES), SPECS))


def rewrites() -> KeptKind[str | None, Rule]:
    return KeptKind("InferenceModelRewrite", rules_of, of_rewrite, POOL)


def objectives() -> KeptKind[str, int]:
    return KeptKind(
        "InferenceObjective",
        lambda name, spec: {name: priority_of(spec)},
        lambda owner, _, lost: of_objective(owner, lost),
        POOL,
    )


def naive(objects: Mapping[tuple[str, int], InferenceObject]) -> tuple[dict[str | None, Rule], set[tuple[str, int]]]:
    """Return the rule of each model, and the objects that lost every model they match."""
    ours = {key: one for key, one in objects.items() if refers_to(one.spec, POOL)}
    newest = {name: min(group for other, group in ours if other == name) for name, _ in ours}
    order = sorted(
        (one.metadata.creation_timestamp, name, group)
        for (name, group), one in ours.items()
        if newest[name] == group and decode(one.spec)["rules"]
    )
    table: dict[str | None, Rule] = {}
    losers = {key for key in ours if newest[key[0]] != key[1] or not decode(ours[key].spec)["rules"]}
    for _, name, group in order:
        won = False
        for model, found in rules_of(name, ours[name, group].spec).items():
            if model not in table:
                table[model], won = found, True
        if not won:
            losers.add((name, group))
    return table, losers


@given(EVENTS, st.integers(1, 4), st.lists(st.integers(0, 3)))
def test_claims_that_are_settled_in_steps_between_the_events_come_to_the_same(
    events: list[Event], every: int, steps: list[int]
) -> None:
    """Some steps are taken after each event, so that the next ones change what is half settled."""
    whole, stepped = rewrites(), rewrites()
    of_whole, of_stepped = dict[str | None, Rule](), dict[str | None, Rule]()
    for n, event in enumerate(events, 1):
        for kept in (whole, stepped):
            if event.spec is None:
                kept.remove(event.group, event.name)
            else:
                kept.put(event.group, item(event.name, event.spec, event.created))
        for _ in islice(stepped.prepare(), steps[n % len(steps)] if steps else 0):
            pass
        if n % every and n < len(events):
            continue
        for kept, table in ((whole, of_whole), (stepped, of_stepped)):
            for model, value in kept.settle().values.items():
                table.pop(model, None) if value is None else table.update({model: value})
        assert of_stepped == of_whole
        assert (stepped.verdicts, stepped.states()) == (whole.verdicts, whole.states())


def test_each_step_settles_one_of_thousands_of_claims_and_none_shows_before_all_are_settled() -> None:
    kept = rewrites()
    for name in "ab":
        kept.put(LLM_D, item(name, {"rules": [rule("x", to=f"{name}{n}") for n in range(1000)]}))
    settling, settled = list[int](), kept._precedence._settle_one
    kept._precedence._settle_one = lambda key: (settling.append(1), settled(key))[1]  # type: ignore[method-assign]
    for n, _ in enumerate(kept.prepare(), 1):
        assert len(settling) == n
        assert not kept.verdicts
    assert len(settling) == 2000
    assert len(kept.settle().values) == 2000
    assert len(settling) == 2000, "nothing is left for one turn"


@given(EVENTS, st.integers(1, 4))
def test_the_rules_after_any_events_are_those_of_a_naive_recomputation(events: list[Event], every: int) -> None:
    kept, objects = rewrites(), dict[tuple[str, int], InferenceObject]()
    table, losers = dict[str | None, Rule](), set[tuple[str, int]]()
    for n, event in enumerate(events, 1):
        key = event.name, event.group
        if event.spec is None:
            objects.pop(key, None)
            kept.remove(event.group, event.name)
        else:
            objects[key] = item(event.name, event.spec, event.created)
            kept.put(event.group, objects[key])
        if n % every and n < len(events):
            continue
        applied = kept.settle()
        for model, value in applied.values.items():
            table.pop(model, None) if value is None else table.update({model: value})
        for gone in applied.gone:
            losers.discard(gone)
        for judged in applied.judged:
            (losers.discard if judged.verdict.accepted else losers.add)(tuple(judged.name))
        assert (table, losers) == naive(objects)
        assert kept.verdicts.keys() == {k for k, one in objects.items() if refers_to(one.spec, POOL)}


def verdict(kept: KeptKind[Any, Any], name: str, group: int = LLM_D) -> str:
    found = kept.verdicts[ObjectName(name, group)]
    return f"{found.accepted} {found.reason}: {found.message}"


def test_the_oldest_has_a_model_and_the_younger_is_given_the_reason() -> None:
    kept = rewrites()
    kept.put(LLM_D, item("qwen-new", {"rules": [rule("x", to="qwen")]}, "2026-01-02T00:00:00Z"))
    kept.put(LLM_D, item("qwen-canary", {"rules": [rule("y", to="qwen")]}, "2026-01-01T00:00:00Z"))
    assert kept.settle().values["qwen"] == Rule("qwen-canary", ("y",), (1,))
    assert verdict(kept, "qwen-new") == "False Conflicted: `qwen-canary` is older and matches the same model"
    assert verdict(kept, "qwen-canary") == "True Accepted: every rule is followed"
    kept.remove(LLM_D, "qwen-canary")
    assert kept.settle().values == {"qwen": Rule("qwen-new", ("x",), (1,))}
    assert verdict(kept, "qwen-new") == "True Accepted: every rule is followed"


def test_of_objects_of_one_second_the_first_by_name_wins() -> None:
    kept = rewrites()
    for name in ("c", "a", "b"):
        kept.put(LLM_D, item(name, {"rules": [rule(name)]}))
    assert kept.settle().values == {None: Rule("a", ("a",), (1,))}
    assert verdict(kept, "b") == "False Conflicted: `a` is as old, comes first by name and matches every model too"


def test_an_object_that_lost_some_of_its_models_is_accepted_in_part() -> None:
    kept = rewrites()
    kept.put(LLM_D, item("a", {"rules": [rule("x", to="m")]}))
    kept.put(LLM_D, item("b", {"rules": [rule("y", to="m"), rule("y", to="n"), rule("y")]}, "2026-02-01T00:00:00Z"))
    kept.configure({None})
    kept.settle()
    assert verdict(kept, "b") == (
        "True PartlyConflicted: in use except for 2 of 3 models: `a` is older and matches `m`; "
        "the picker's configuration comes first and matches every model"
    )


def test_the_configuration_comes_first_and_what_it_gives_up_is_used() -> None:
    kept = objectives()
    kept.configure({"batch"})
    kept.put(LLM_D, item("batch", {"priority": 5}))
    assert kept.settle().values == {"batch": 5}, "who has precedence is known where both are"
    assert verdict(kept, "batch").startswith("False Conflicted: the picker's configuration has an objective of this")
    kept.configure(())
    kept.settle()
    assert verdict(kept, "batch") == "True Accepted: requests that name `batch` have this priority"


def test_of_one_name_in_both_groups_the_newer_groups_is_used_and_the_other_when_it_is_gone() -> None:
    kept = objectives()
    kept.put(LEGACY, item("batch", {"priority": 1}, "2025-01-01T00:00:00Z"))
    assert kept.settle().values == {"batch": 1}
    kept.put(LLM_D, item("batch", {"priority": 2}))
    assert kept.settle().values == {"batch": 2}
    assert verdict(kept, "batch", LEGACY) == (
        "False Superseded: the InferenceObjective of this name in llm-d.ai is used instead; delete one of the two"
    )
    assert verdict(kept, "batch").startswith("True Accepted")
    kept.remove(LLM_D, "batch")
    applied = kept.settle()
    assert (applied.values, applied.gone) == ({"batch": 1}, [ObjectName("batch", LLM_D)])
    assert verdict(kept, "batch", LEGACY).startswith("True Accepted")


def test_an_object_that_cannot_be_read_concerns_no_other() -> None:
    kept = objectives()
    kept.put(LLM_D, item("bad", {"priority": 1 << 40}))
    kept.put(LLM_D, item("good", {"priority": 1}))
    kept.put(LLM_D, item("elsewhere", {"priority": 1, **OTHER}))
    assert kept.settle().values == {"good": 1}
    assert verdict(kept, "bad") == (
        "False Invalid: spec.priority: 1099511627776 is not from -2147483648 to 2147483647; write a smaller number"
    )
    assert kept.states() == {(GROUPS[0], "Accepted"): 1, (GROUPS[0], "Invalid"): 1, (GROUPS[0], "OtherPool"): 1}


def test_a_circle_of_rewrites_is_two_rules_since_a_target_is_not_matched_again() -> None:
    kept = rewrites()
    kept.put(LLM_D, item("a", {"rules": [rule("n", to="m"), rule("m", to="n")]}))
    values = kept.settle().values
    assert {model: found.targets for model, found in values.items() if found} == {"m": ("n",), "n": ("m",)}
    assert verdict(kept, "a").startswith("True Accepted")


def test_of_an_object_of_another_pool_nothing_but_its_metadata_is_kept() -> None:
    kept = rewrites()
    metadata = NumberedMetadata("a", uid="u", annotations={"last-applied": "x" * 10_000})
    kept.put(LLM_D, InferenceObject(metadata, raw({**OTHER, "rules": [rule("x")] * 1000}), {"conditions": []}))
    assert kept._items[ObjectName("a", LLM_D)] == InferenceObject(NumberedMetadata("a", uid="u"))
    assert kept.states() == {("llm-d.ai", "OtherPool"): 1}
    kept.put(LLM_D, InferenceObject(metadata, raw({**REF, "rules": [rule("x")]})))
    assert kept.settle().values.keys() == {None}
