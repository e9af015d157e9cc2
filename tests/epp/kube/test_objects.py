"""What the API server, or something in its place, may write is decoded or refused with one kind of error."""

from __future__ import annotations

import msgspec
import pytest

from epp.kube.objects import ContainerStatus, Decoder, ListOf, Pod, PodSpec, WatchEvent

PODS: Decoder[ListOf[Pod]] = Decoder(ListOf[Pod])


@pytest.mark.parametrize(
    "text",
    [
        '{"metadata": null, "spec": null, "status": null}',
        '{"metadata": {"name": null, "labels": null, "creationTimestamp": null}}',
        '{"spec": {"containers": null}, "status": {"podIP": null, "conditions": [null]}}',
    ],
)
def test_a_field_that_is_null_has_its_default(text: str) -> None:
    pod = Decoder(Pod).decode(text.encode())
    assert (pod.metadata.name, pod.metadata.creation_timestamp, pod.status.pod_ip) == ("", "", "")
    assert pod.spec == PodSpec()


def test_a_null_spoils_neither_its_siblings_nor_its_list() -> None:
    page = PODS.decode(b'{"items": [{"metadata": {"name": "a", "labels": {"x": null, "y": "1"}}}, null]}')
    assert [(item.metadata.name, item.metadata.labels) for item in page.items or ()] == [("a", {"y": "1"})]


@pytest.mark.parametrize("when", ["", "2026-11-22T10:00:60Z", "2026-11-22T10:00:00", "soon"])
def test_a_time_in_an_odd_form_is_kept_as_it_is(when: str) -> None:
    text = msgspec.json.encode({"name": "c", "state": {"running": {"startedAt": when}}})
    state = Decoder(ContainerStatus).decode(text).state
    assert state is not None
    assert state.running is not None
    assert state.running.started_at == when


@pytest.mark.parametrize(
    "raw",
    [
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"metadata": {"name": "\xff"}}',
        b'{"metadata": null, "x": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"metadata": 7}',
        b"[]",
        b"",
    ],
)
def test_everything_else_is_refused_with_one_kind_of_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Decoder(Pod).decode(raw)


def test_an_event_without_a_type_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        Decoder(WatchEvent).decode(b'{"type": null, "object": {}}')
    with pytest.raises(msgspec.DecodeError):
        Decoder(WatchEvent).decode(b'{"type": 7, "object": {}}')
