"""Tests of how the events of a watch are decoded: with their object in one pass, else in two."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from epp.kube.events import Change, EventDecoder
from epp.kube.objects import AnyObject, Pod, WatchEvent

POD = {"metadata": {"name": "a", "resourceVersion": "7", "labels": {"app": "vllm"}}, "spec": {"nodeName": "n"}}


def line(change: str, item: object) -> bytes:
    return json.dumps({"type": change, "object": item}).encode()


@pytest.mark.parametrize("change", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ODD"])
def test_an_event_is_decoded_with_its_object_in_one_pass(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = EventDecoder(Pod)
    alone = decoder.one.decode(json.dumps(POD).encode())
    monkeypatch.setattr("epp.kube.events._EVENT", None)  # no second pass
    assert decoder.decode(line(change, POD)) == Change(change, alone)


@pytest.mark.parametrize(
    ("kind", "change", "item"),
    [
        (Pod, "MODIFIED", {"metadata": {"name": "a", "labels": None}, "spec": None}),
        (Pod, "MODIFIED", {"metadata": {"name": 3}}),
        (Pod, "ERROR", {"kind": "Status", "status": "Failure", "code": 410}),
        (Pod, "ERROR", {"kind": "Status", "code": 410}),
        (AnyObject, "MODIFIED", POD),
    ],
    ids=["nulls", "a wrong type", "an error", "an error that could be an object", "a whole object"],
)
def test_other_events_leave_their_object_to_their_reader(kind: type[Any], change: str, item: object) -> None:
    event = EventDecoder(kind).decode(line(change, item))
    assert isinstance(event, WatchEvent)
    assert (event.type, msgspec.json.decode(event.object)) == (change, item)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"{", b'{"type": 7, "object": {}}', b"\xff", b"[" * 100_000])
def test_what_is_no_event_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        EventDecoder(Pod).decode(raw)
