"""Objectives and rewrites of an API server reach the requests, and their conditions the API server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiohttp import web

from epp.kube import served
from epp.kube.objects_inference import GROUPS, VERSION, InferenceObject
from epp.resources import status_writer
from epp.resources.custom_resources import _Listener
from epp.resources.kept import KeptKind
from epp.resources.precedence import Precedence
from epp.runtime.slices import SLICE_S
from tests.epp.kube.api_server import status
from tests.epp.resources.following import Site, site
from tests.epp.resources.objects import LEGACY, LLM_D, item, rule, written

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "LOOK_AGAIN_S", (0.01, 0.02))
    monkeypatch.setattr(status_writer, "FAILED_PAUSE_S", 0.01)


@pytest.mark.parametrize("group", [LLM_D, LEGACY])
def test_objects_of_either_group_come_change_and_go(group: int) -> None:
    async def work() -> None:
        async with site(group) as here:
            await here.objectives(group).put(written("batch", {"priority": -5}))
            await here.rewrites(group).put(written("food", {"rules": [rule("t", to="m")]}))
            await here.until(lambda: here.decided.priorities == {"batch": -5} and "m" in here.decided.rules)
            await here.until(lambda: here.condition(here.objectives(group), "batch") == "True Accepted")
            await here.until(lambda: here.condition(here.rewrites(group), "food") == "True Accepted")
            await here.objectives(group).put(written("batch", {"priority": 7}))
            await here.until(lambda: here.decided.priorities == {"batch": 7})
            await here.rewrites(group).delete("food")
            await here.until(lambda: not here.decided.rules)
            assert here.part.trouble is None

    run(work())


def test_the_younger_of_two_rewrites_has_the_reason_in_its_status_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with site(LLM_D) as here:
            await here.rewrites().put(written("qwen-new", {"rules": [rule("x", to="qwen")]}, NEW))
            await here.until(lambda: here.condition(here.rewrites(), "qwen-new") == "True Accepted")
            await here.rewrites().put(written("qwen-canary", {"rules": [rule("y", to="qwen")]}, OLD))
            await here.until(lambda: here.condition(here.rewrites(), "qwen-new") == "False Conflicted")
            conditions = here.rewrites().objects["qwen-new"]["status"]["conditions"]
            assert conditions[0]["message"] == "`qwen-canary` is older and matches the same model"
            assert here.decided.rules["qwen"].targets == ("y",)
            assert here.gauges()["tierwise_custom_resources", "InferenceModelRewrite", "llm-d.ai", "Conflicted"] == 1

    run(work())
    assert (
        "InferenceModelRewrite qwen-new of llm-d.ai: Conflicted: `qwen-canary` is older and matches the same model"
        in caplog.messages
    )


def test_both_groups_count_and_of_one_name_the_newer_group(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site(LLM_D, LEGACY) as here:
            await here.objectives(LEGACY).put(written("old", {"priority": 1}))
            await here.objectives(LEGACY).put(written("both", {"priority": 2}))
            await here.objectives(LLM_D).put(written("both", {"priority": 3}))
            await here.until(lambda: here.decided.priorities == {"old": 1, "both": 3})
            await here.until(lambda: here.condition(here.objectives(LEGACY), "both") == "False Superseded")

    run(work())
    assert any("of this name in llm-d.ai is used instead" in message for message in caplog.messages)


def test_kinds_that_are_installed_later_are_used_and_those_that_are_removed_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with site() as here:
            await here.objectives(LEGACY).put(written("batch", {"priority": 4}))
            await here.until(lambda: here.part.trouble is not None and "Rewrite" in here.part.trouble)
            assert (here.part.trouble or "").startswith(
                "neither llm-d.ai/v1alpha2 nor inference.networking.x-k8s.io/v1alpha2 has InferenceObjective, so "
                "priorities come from the configuration alone; neither"
            )
            here.installed = {LEGACY}
            await here.until(lambda: here.decided.priorities == {"batch": 4})
            await here.until(lambda: here.part.trouble is None)
            here.installed = set()
            await here.server.cut()
            await here.until(lambda: not here.decided.priorities)
            await here.until(lambda: here.part.trouble is not None)

    run(work())
    missing = [message for message in caplog.messages if "has InferenceObjective" in message]
    assert len(missing) == 2, "one warning each time"


def test_a_right_that_is_missing_is_one_warning_and_used_once_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site(LLM_D) as here:
            here.refuse = lambda r: status(403, "Forbidden", "no") if "inferenceobjectives" in r.path else None
            await here.rewrites().put(written("food", {"rules": [rule("t")]}))
            await here.objectives().put(written("batch", {"priority": 4}))
            await here.server.cut()
            await here.until(lambda: "InferenceObjective may be out of date" in (here.part.trouble or ""))
            assert "a Role with this rule is missing" in (here.part.trouble or "")
            await here.until(lambda: None in here.decided.rules)  # the other kind works
            current = "tierwise_custom_resources_current", "InferenceObjective", "llm-d.ai"
            assert here.gauges()[current] == 0
            here.refuse = lambda _: None
            await here.until(lambda: here.decided.priorities == {"batch": 4})
            await here.until(lambda: here.gauges()[current] == 1)

    run(work())
    assert sum("inferenceobjectives: 403" in message for message in caplog.messages) == 1


def test_an_api_server_that_lists_nothing_of_what_it_serves_is_asked_for_the_objects_themselves() -> None:
    async def work() -> None:
        async with site(LLM_D) as here:
            here.refuse = lambda r: status(403, "Forbidden", "no") if r.path.endswith("v1alpha2") else None
            await here.objectives().put(written("batch", {"priority": 4}))
            await here.until(lambda: here.decided.priorities == {"batch": 4})

    run(work())


def test_without_the_right_to_write_conditions_all_else_works_and_one_warning_has_the_rule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with site(LLM_D) as here:
            here.refuse = lambda r: status(403, "Forbidden", "cannot patch") if r.method == "PATCH" else None
            await here.objectives().put(written("a", {"priority": 1}))
            await here.objectives().put(written("b", {"priority": 2}))
            await here.until(lambda: here.gauges()["tierwise_custom_resource_status_writes", "refused"] > 2)
            assert here.decided.priorities == {"a": 1, "b": 2}
            assert here.part.trouble is None
            here.refuse = lambda _: None
            for name in "ab":
                await here.until(lambda name=name: here.condition(here.objectives(), name) == "True Accepted")

    run(work())
    assert sum("the condition Accepted is not written" in message for message in caplog.messages) == 1


def test_a_conflict_is_tried_again_and_what_the_other_wrote_is_kept() -> None:
    async def work() -> None:
        async with site(LLM_D) as here:
            other = {"type": "Other", "status": "True", "reason": "R", "message": "", "lastTransitionTime": OLD}
            lost = list[str]()

            a = written("a", {"priority": 1})

            def first_lose(request: web.Request) -> web.Response | None:
                if request.method == "PATCH" and not lost:
                    lost.append(request.path)
                    return status(409, "Conflict", "the object has been modified")
                return None

            here.refuse = first_lose
            await here.objectives().put(a)
            await here.until(lambda: bool(lost))
            await here.objectives().put({**a, "status": {"conditions": [other]}})  # what the other writer has written
            await here.until(lambda: here.condition(here.objectives(), "a") == "True Accepted")
            assert other in here.objectives().objects["a"]["status"]["conditions"]
            writes = "tierwise_custom_resource_status_writes"
            await here.until(lambda: here.gauges()[writes, "written"] == 1)
            assert here.gauges()[writes, "conflict"] == 1

    run(work())


def test_several_pickers_write_a_condition_once_and_do_not_fight() -> None:
    async def work() -> None:
        async with site(LLM_D) as here:
            other = Site(here.server, LLM_D)
            other.decided.configured_objectives = {"a"}
            async with other.client:
                await here.objectives().put(written("a", {"priority": 1}))
                await here.until(lambda: here.condition(here.objectives(), "a") == "True Accepted")
                await other.part.start()
                await here.until(lambda: here.condition(here.objectives(), "a") == "False Conflicted")
                for name in "bcd":
                    await here.objectives().put(written(name, {"priority": 1}))
                    await here.until(lambda name=name: here.condition(here.objectives(), name) == "True Accepted")
                assert here.condition(here.objectives(), "a") == "False Conflicted", "each has written it once"

                def writes() -> float:
                    counter = ("tierwise_custom_resource_status_writes", "written")
                    return sum(one.gauges()[counter] for one in (here, other))

                await here.until(lambda: writes() >= 5)  # a write is counted after its answer
                assert writes() == 5
                await other.part.stop()

    run(work())


def test_what_the_configuration_has_is_learned_again_when_it_changes() -> None:
    async def work() -> None:
        async with site(LLM_D) as here:
            await here.objectives().put(written("a", {"priority": 1}))
            await here.until(lambda: here.condition(here.objectives(), "a") == "True Accepted")
            here.decided.configured_objectives = {"a"}
            here.part.configure()
            await here.until(lambda: here.condition(here.objectives(), "a") == "False Conflicted")

    run(work())


def test_thousands_of_objects_are_applied_in_one_step_each_and_few_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def work() -> None:
        async with site() as here:
            for n in range(2000):
                name = f"r{n:04}"
                here.rewrites().objects[name] = {
                    **written(name, {"rules": [rule("t", to=f"m{n % 1000}")]}),
                    "metadata": {**written(name, {})["metadata"], "namespace": "default", "resourceVersion": "1"},
                }
            await here.rewrites().put(written("last", {"rules": [rule("t")]}))
            here.installed = {LLM_D}
            await here.until(lambda: len(here.decided.rules) == 1001)
            assert here.decided.steps == 1
            lost = "tierwise_custom_resources", "InferenceModelRewrite", "llm-d.ai", "Conflicted"
            await here.until(lambda: here.gauges().get(lost) == 1000)
            await here.until(lambda: any("more objects are not used" in message for message in caplog.messages))

    run(work())
    assert sum("Conflicted" in message for message in caplog.messages) == 10
    assert "and 990 more objects are not used as they are written" in caplog.messages


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(("each_s", "most"), [(1.0, 1), (SLICE_S / 5, 12)])
def test_no_turn_has_more_steps_than_the_ends_of_two_slices(
    listed: bool, each_s: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still but for the reading of an object and the settling of a claim, which take ``each_s``."""
    now, turns = [0.0], [0]

    async def work() -> None:
        loop = asyncio.get_running_loop()

        def slow(method: Callable[..., Any]) -> Callable[..., Any]:
            def step(*given: Any) -> Any:
                if turns[-1] == 0:
                    loop.call_soon(turns.append, 0)
                turns[-1] += 1
                now[0] += each_s
                return method(*given)

            return step

        monkeypatch.setattr("epp.runtime.slices.sliced.__defaults__", (lambda: now[0],))
        monkeypatch.setattr(KeptKind, "put", slow(KeptKind.put))
        monkeypatch.setattr(Precedence, "_settle_one", slow(Precedence._settle_one))
        async with site() as here:
            await here.until(lambda: "has InferenceModelRewrite" in (here.part.trouble or ""))  # its list is empty
            listener = _Listener(here.part._take, here.part._rewrites, LLM_D)
            objects = [item(f"r{n}", {"rules": [rule("t", to=f"m{n}")]}) for n in range(50)]
            if listed:
                assert not list(listener.listed(objects))
            else:
                for each in objects:
                    listener.changed(each)
            await here.until(lambda: len(here.decided.rules) == 50)
            assert here.decided.steps == 1, "no request sees half"

    run(work())
    assert sum(turns) == 100
    assert max(turns) <= most


@pytest.mark.parametrize(("code", "pending"), [(422, 0), (403, 1), (500, 1)])
def test_an_object_whose_condition_cannot_be_written_keeps_no_other_from_its_own(code: int, pending: int) -> None:
    def bad(request: web.Request) -> web.Response | None:
        wrong = request.method == "PATCH" and "/a-bad/" in request.path
        return status(code, "Invalid", "status.conditions: Too many: 9: must have at most 8 items") if wrong else None

    async def work() -> None:
        async with site(LLM_D) as here:
            here.refuse = bad
            await here.objectives().put(written("a-bad", {"priority": 1}))
            await here.until(lambda: here.decided.priorities == {"a-bad": 1})
            await here.objectives().put(written("good", {"priority": 2}))
            await here.until(lambda: here.condition(here.objectives(), "good") == "True Accepted")
            await here.until(lambda: here.gauges()[("tierwise_custom_resource_status_pending",)] == pending)
            here.refuse = lambda _: None
            await here.objectives().put(written("a-bad", {"priority": 3}))
            await here.until(lambda: here.condition(here.objectives(), "a-bad") == "True Accepted")

    run(work())


def test_a_kind_installed_while_discovery_fails_is_not_missing_any_more() -> None:
    async def work() -> None:
        async with site() as here:
            await here.until(lambda: "neither" in (here.part.trouble or ""))
            found = f"/apis/{GROUPS[LLM_D]}/{VERSION}"
            here.refuse = lambda r: status(503, "Unavailable", "starting") if r.path == found else None
            here.installed.add(LLM_D)
            await here.objectives().put(written("a", {"priority": 7}))
            await here.until(lambda: here.decided.priorities == {"a": 7})
            await here.until(lambda: here.part.trouble is None)
            here.refuse = lambda _: None
            here.installed.clear()
            await here.objectives().cut()
            await here.until(lambda: not here.decided.priorities)

    run(work())


@pytest.mark.parametrize("pool", ["pool", "another"])
def test_a_rewrite_of_a_megabyte_stalls_nothing_for_long(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matches = [{"model": {"value": f"m{n}"}} for n in range(30_000)]
    large = written("large", {"poolRef": {"name": pool}, "rules": [{**rule("x"), "matches": matches}]})
    longest, put = [0.0], KeptKind.put

    def timed(kept: KeptKind[Any, Any], group: int, item: InferenceObject) -> None:
        began = time.thread_time()
        put(kept, group, item)
        longest[0] = max(longest[0], time.thread_time() - began)

    async def work() -> None:
        async with site(LLM_D) as here:
            await here.rewrites().put(large)
            state = "Invalid" if pool == "pool" else "OtherPool"
            key = "tierwise_custom_resources", "InferenceModelRewrite", GROUPS[LLM_D], state
            await here.until(lambda: here.gauges().get(key) == 1)
            if pool == "pool":
                await here.until(lambda: here.condition(here.rewrites(), "large") == "False Invalid")

    monkeypatch.setattr(KeptKind, "put", timed)
    run(work())
    assert longest[0] < 0.03
