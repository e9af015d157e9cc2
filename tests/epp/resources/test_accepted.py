"""The condition that is written: what changes, what stays, and when nothing is written."""

from __future__ import annotations

from typing import Any

import msgspec

from epp.kube.objects_inference import InferenceObject
from epp.resources.accepted import accepted_patch
from epp.resources.verdict import Verdict

YES, NO = Verdict(True, "Accepted", "fine"), Verdict(False, "Conflicted", "`a` is older")
READY = {"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "", "lastTransitionTime": "1970"}


def of(status: Any) -> InferenceObject:
    metadata = {"name": "a", "resourceVersion": "7", "generation": 3}
    return msgspec.convert({"metadata": metadata, "status": status}, InferenceObject)


def condition(verdict: Verdict, at: str, generation: int = 3) -> dict[str, Any]:
    return {
        "type": "Accepted", "status": str(verdict.accepted), "reason": verdict.reason, "message": verdict.message,
        "observedGeneration": generation, "lastTransitionTime": at,
    }  # fmt: skip


def test_the_first_verdict_is_added_and_other_conditions_stay() -> None:
    patch = accepted_patch(of({"conditions": [READY]}), YES, "now")
    assert patch == {
        "metadata": {"resourceVersion": "7"},
        "status": {"conditions": [READY, condition(YES, "now")]},
    }


def test_a_status_that_is_missing_or_odd_is_written_anew() -> None:
    for status in (None, {}, {"conditions": None}, "text", {"conditions": [None]}):
        patch = accepted_patch(of(status), YES, "now")
        assert patch is not None
        assert patch["status"]["conditions"] == [condition(YES, "now")]


def test_what_is_there_is_not_written_again() -> None:
    assert accepted_patch(of({"conditions": [READY, condition(NO, "then")]}), NO, "now") is None


def test_the_time_is_that_of_the_last_change_of_the_status() -> None:
    other = Verdict(False, "Invalid", "spec.rules: empty")
    for before, after, time in ((NO, YES, "now"), (NO, other, "then")):
        patch = accepted_patch(of({"conditions": [condition(before, "then"), READY]}), after, "now")
        assert patch is not None
        assert patch["status"]["conditions"] == [condition(after, time), READY]


def test_a_new_generation_is_written_though_the_verdict_is_the_same() -> None:
    patch = accepted_patch(of({"conditions": [condition(YES, "then", generation=2)]}), YES, "now")
    assert patch is not None
    assert patch["status"]["conditions"] == [condition(YES, "then")]
