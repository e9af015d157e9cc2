"""An InferencePool of either group as one value, and which of several is used."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.discovery.inference_pool import GroupState, InferencePool, chosen, from_old_pool, from_pool, why_none
from epp.discovery.options import PodOptions
from epp.errors import ConfigError
from epp.kube.objects import Decoder
from epp.kube.pools import OldPoolObject, PoolObject

V1, OLD = "new/v1", "old/v1alpha2"


def pool(**spec: Any) -> PoolObject:
    whole = {"selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": 8000}], **spec}
    return Decoder(PoolObject).decode(msgspec.json.encode({"metadata": {"name": "p"}, "spec": whole}))


def old_pool(**spec: Any) -> OldPoolObject:
    whole = {"selector": {"app": "vllm"}, "targetPortNumber": 8000, **spec}
    return Decoder(OldPoolObject).decode(msgspec.json.encode({"metadata": {"name": "p"}, "spec": whole}))


def test_both_groups_mean_the_same() -> None:
    pods = PodOptions(selector="app=vllm", ports=(8000,))
    assert from_pool(pool()) == from_old_pool(old_pool()) == InferencePool(pods)


def test_labels_ports_protocol_and_picker_are_read_and_other_fields_skipped() -> None:
    read = from_pool(pool(
        selector={"matchLabels": {"b": "", "a.io/x": "Y-1"}}, targetPorts=[{"number": 8001}, {"number": 8000}],
        appProtocol="kubernetes.io/h2c", endpointPickerRef={"name": "epp", "port": {"number": 9002}, "new": 1}, more=2,
    ))  # fmt: skip
    assert read == InferencePool(PodOptions(selector="a.io/x=Y-1,b=", ports=(8001, 8000)), "kubernetes.io/h2c", "epp")
    assert from_old_pool(old_pool(extensionRef={"name": "epp", "portNumber": 9002})).picker == "epp"


def test_what_is_absent_under_older_definitions_is_absent() -> None:
    read = from_pool(pool(appProtocol=None, endpointPickerRef=None))
    assert (read.app_protocol, read.picker) == (None, None)
    assert from_pool(pool(endpointPickerRef={"kind": "Other", "name": "x"})).picker is None


@pytest.mark.parametrize("spec", [
    {"selector": {}}, {"selector": {"matchLabels": {}}}, {"selector": {"matchLabels": None}}, {"selector": None},
])  # fmt: skip
def test_an_empty_selector_would_select_every_pod(spec: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="its selector is empty and would select every pod; write a label into it"):
        from_pool(pool(**spec))
    with pytest.raises(ConfigError, match="would select every pod"):
        from_old_pool(old_pool(selector={}))


@pytest.mark.parametrize("ports", [[], [0], [65536], [-1], [8000, 8000], list(range(1, 10))])
def test_ports_that_cannot_be_used_are_named(ports: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"its ports are .*; write one to 8 different ones, from 1 to 65535"):
        from_pool(pool(targetPorts=[{"number": port} for port in ports]))


def test_labels_at_their_limits_are_taken_and_what_is_no_label_is_named() -> None:
    longest = f"{'d' * 63}.{'e' * 63}.{'f' * 63}.{'g' * 61}/{'n' * 63}"
    assert from_pool(pool(selector={"matchLabels": {longest: "v" * 63}})).pods.selector == f"{longest}={'v' * 63}"
    with pytest.raises(ConfigError, match="its selector cannot be used: 'app=a b'"):
        from_pool(pool(selector={"matchLabels": {"app": "a b"}}))


def state(group: str = V1, *, asked: bool = True, has: bool = False, refused: int = 0, trouble: str = "") -> GroupState:
    return GroupState(group, asked, pool() if has else None, refused, trouble or None)


def refused(group: str, status: int) -> GroupState:
    return state(group, refused=status, trouble=f"{group}: {status}")


DYING = state()._replace(pool=msgspec.structs.replace(
    pool(), metadata=msgspec.structs.replace(pool().metadata, deletion_timestamp="2026-11-22T10:00:00Z")
))  # fmt: skip


@pytest.mark.parametrize(("states", "used"), [
    ([state(has=True), state(OLD, has=True)], V1),
    ([state(), state(OLD, has=True)], OLD),
    ([state(asked=False), state(OLD, has=True)], None),
    ([refused(V1, 404), state(OLD, has=True)], OLD),
    ([refused(V1, 403), state(OLD, has=True)], OLD),
    ([DYING, state(OLD, has=True)], OLD),
    ([DYING], None),
    ([state()], None),
])  # fmt: skip
def test_the_first_group_that_has_the_pool_is_used_once_the_earlier_ones_were_asked(
    states: list[GroupState], used: str | None
) -> None:
    one = chosen(states)
    assert (one and one.group) == used


@pytest.mark.parametrize(("states", "sentence"), [
    ([state(), state(OLD)], "the pool does not exist in new/v1 and old/v1alpha2"),
    ([state(), refused(OLD, 404)], "the pool does not exist in new/v1"),
    ([state(), refused(OLD, 403)], "the pool does not exist in new/v1"),
    ([refused(V1, 403), refused(OLD, 403)], "the pool cannot be read: new/v1: 403"),
    ([refused(V1, 404), refused(OLD, 403)], "the pool cannot be read: old/v1alpha2: 403"),
    ([refused(V1, 404), refused(OLD, 404)],
     "the API server knows no InferencePool of new/v1 or old/v1alpha2: its definition is not installed"),
    ([state(asked=False), refused(OLD, 403)], "the pool is being read"),
    ([state(asked=False, trouble="no route"), state(OLD, asked=False)], "the pool cannot be read: no route"),
    ([DYING, state(OLD)], "the pool is being deleted"),
])  # fmt: skip
def test_a_missing_pool_has_a_reason(states: list[GroupState], sentence: str) -> None:
    assert why_none(states, "the pool") == sentence


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=4))
def test_a_later_group_is_never_used_before_each_earlier_one_was_asked(known: list[tuple[bool, bool]]) -> None:
    states = [state(f"g{n}", asked=asked, has=has and asked) for n, (asked, has) in enumerate(known)]
    one = chosen(states)
    having = [n for n, (asked, has) in enumerate(known) if asked and has]
    expected = having[0] if having and all(asked for asked, _ in known[: having[0]]) else None
    assert (None if one is None else states.index(one)) == expected
