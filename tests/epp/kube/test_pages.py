"""Tests of how the pages of a list are decoded: in one pass where that is a short step, else object by object."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from epp.kube.client import Client
from epp.kube.objects import AnyObject, Decoder, Decodes, Pod
from epp.kube.pages import AT_ONCE_BYTES, FIRST, PAGE_BYTES, PageDecoder, PageSize, read_list
from epp.kube.unreadable import Unreadable


def body(count: int, size: int, *more: object) -> bytes:
    """Return a page of ``count`` pods of ``size`` bytes, and of other items."""
    pods = [{"metadata": {"name": f"p{n}", "annotations": {"padding": "x" * size}}} for n in range(count)]
    return json.dumps({"metadata": {"resourceVersion": "7"}, "items": [*pods, *more]}).encode()


def test_a_page_of_the_usual_size_is_decoded_in_one_pass() -> None:
    raw = body(FIRST, 9000)
    assert PAGE_BYTES < len(raw) <= AT_ONCE_BYTES
    page = PageDecoder(Pod).decode(raw)
    assert [pod.metadata.name for pod in page.objects] == [f"p{n}" for n in range(FIRST)]
    assert (page.left, page.meta.resource_version, page.size) == ([], "7", len(raw))


@pytest.mark.parametrize(
    ("kind", "raw", "count"),
    [
        (Pod, body(FIRST, 100_000), FIRST),
        (Pod, body(1, 10, None, {"metadata": {"labels": None}}), 3),
        (AnyObject, body(3, 10), 3),
    ],
    ids=["large", "nulls", "whole objects"],
)
def test_other_pages_are_left_to_be_decoded_object_by_object(kind: type[Any], raw: bytes, count: int) -> None:
    page = PageDecoder(kind).decode(raw)
    assert page.objects == []
    assert len(page.left) == count
    assert page.meta.resource_version == "7"


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"metadata": 3}', b'{"items": [}]}', b"\xff", b"[" * 100_000])
def test_what_is_no_page_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        PageDecoder(Pod).decode(raw)


class Pages:
    """A client that answers with prepared pages, and notes how many objects a turn of the event loop decodes."""

    def __init__(self, *pages: bytes) -> None:
        self._pages = list(pages)
        self.unreadable = Unreadable()
        self.limits = list[str]()

    async def get(self, path: str, decoder: Decodes[Any], query: Mapping[str, str]) -> Any:
        assert path == "/pods"
        self.limits.append(query["limit"])
        return decoder.decode(self._pages.pop(0))


def test_no_turn_decodes_many_objects_of_a_large_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        turns, decoded = [0], Decoder[Pod].decode
        loop = asyncio.get_running_loop()

        def count(decoder: Decoder[Pod], raw: bytes | msgspec.Raw) -> Pod:
            if turns[-1] == 0:
                loop.call_soon(turns.append, 0)
            turns[-1] += 1
            return decoded(decoder, raw)

        ticks = iter(range(1_000_000))
        monkeypatch.setattr("epp.runtime.slices.sliced.__defaults__", (lambda: float(next(ticks)),))
        client = Pages(body(100, 30_000))
        decoder = PageDecoder(Pod)
        monkeypatch.setattr(Decoder, "decode", count)
        objects, version = await read_list(cast("Client", client), "/pods", decoder, {}, PageSize(250))
        assert (len(objects), version) == (100, "7")
        assert sum(turns) >= 100
        assert max(turns) <= 3  # two of them are the page and its metadata

    asyncio.run(work())


def test_the_size_of_the_next_page_follows_both_ways_of_decoding() -> None:
    async def work(size: int) -> int:
        learns = PageSize(250)
        await read_list(cast("Client", Pages(body(100, size))), "/pods", PageDecoder(Pod), {}, learns)
        return learns.objects

    assert asyncio.run(work(9_000)) == PAGE_BYTES * 100 // len(body(100, 9_000))
    assert asyncio.run(work(90_000)) == PAGE_BYTES * 100 // len(body(100, 90_000))
