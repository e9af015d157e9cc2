"""Read a list of any length in pages whose size follows that of its objects, so that no page stalls the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar, cast

import msgspec

from epp.kube.client import Client
from epp.kube.errors import TooLarge, Unreachable
from epp.kube.objects import Decoder, ListMeta, ListOf, Object, names_its_fields
from epp.kube.unreadable import Unreadable
from epp.runtime.slices import sliced

T = TypeVar("T", bound=Object)

FIRST = 125
"""The most objects of the first page, before their size is known: 125 pods of 9 KB are 1.1 MB."""
PAGE_BYTES = 1 << 20
"""The size of a page that is aimed at: 110 pods of 9 KB, which are decoded in about 1 ms."""
AT_ONCE_BYTES = PAGE_BYTES * 3 // 2
"""The largest page whose objects are decoded in one step. In a larger one, finding the objects is one step, which
takes about 0.5 ms for each MB, and each object is another."""
NAMELESS = "its metadata has no name"
MAX_OBJECTS = 200_000
"""The most objects of a list. Source: Kubernetes supports 150,000 pods in a cluster."""


class _Found(msgspec.Struct, frozen=True):
    """One page of a list, of which each object is decoded by itself."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    items: list[msgspec.Raw] | None = None


_FOUND, _META = Decoder(_Found), Decoder(ListMeta)


class Page(NamedTuple, Generic[T]):
    """What one answer has of a list: ``objects`` that are decoded, then ``left`` to be decoded one by one."""

    meta: ListMeta
    objects: list[T]
    left: list[msgspec.Raw]
    size: int
    """The bytes of the answer."""


class PageDecoder(Generic[T]):
    """Decodes the pages of one kind, in one pass where that is a short step. Made before the first answer."""

    def __init__(self, kind: type[T]) -> None:
        self.one: Decoder[T] = Decoder(kind)
        in_one_pass = names_its_fields(cast("type[object]", kind))
        self._all: msgspec.json.Decoder[ListOf[T]] | None
        self._all = msgspec.json.Decoder(ListOf[kind]) if in_one_pass else None  # type: ignore[valid-type]

    def decode(self, raw: bytes | msgspec.Raw) -> Page[T]:
        """Return the page in ``raw``. Raises: msgspec.DecodeError, for objects that are decoded now too."""
        size = memoryview(raw).nbytes
        if self._all is not None and size <= AT_ONCE_BYTES:
            with suppress(msgspec.ValidationError, RecursionError, UnicodeDecodeError):  # a null, or an error
                page = self._all.decode(raw)
                objects = page.items or []
                if all(one.metadata.name for one in objects):
                    return Page(page.metadata, objects, [], size)
        found = _FOUND.decode(raw)
        return Page(_META.decode(found.metadata), [], found.items or [], size)


class PageSize:
    """How many objects the next page is asked for. Invariant: 1 <= ``objects`` <= ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.objects = min(most, FIRST)

    def learn(self, objects: int, size: int) -> None:
        """Aim at ``PAGE_BYTES`` after a page of so many objects, and ``size`` bytes."""
        if objects:
            self.objects = max(1, min(self._most, PAGE_BYTES * objects // max(1, size)))

    def halve(self) -> bool:
        """Ask for half as many after an answer that was too large. Returns False for one object, the least."""
        before, self.objects = self.objects, max(1, self.objects // 2)
        return self.objects < before


async def read_list(
    client: Client,
    path: str,
    decoder: PageDecoder[T],
    query: Mapping[str, str],
    size: PageSize,
    *,
    strict: bool = False,
) -> tuple[list[T], str]:
    """Return all objects and the version of the list at ``path``; ``size`` learns from each page.

    An object that cannot be read is left out; with ``strict`` it fails the list.
    Raises: KubeError, ``Refused`` with status 410 for a page that is no longer kept; ConfigError as ``Client`` does.
    """
    objects: list[T] = []
    asked, query = 0, dict(query)
    while asked <= MAX_OBJECTS and len(objects) <= MAX_OBJECTS:
        query["limit"] = str(size.objects)  # the API server lets it change from page to page
        try:
            page = await client.get(path, decoder, query)
        except TooLarge:
            if not size.halve():
                raise
            continue
        asked += size.objects
        meta = page.meta
        if not meta.resource_version:  # any JSON object would pass as a list without objects
            raise Unreachable(f"GET {path}: the answer is not a list; is a proxy in between?")
        objects += page.objects
        try:
            await sliced(_decoded(path, page.left, decoder.one, objects, None if strict else client.unreadable))
        except msgspec.DecodeError as error:
            raise Unreachable(f"GET {path}: the answer is not the API's: {error}; is a proxy in between?") from error
        size.learn(len(page.objects) or len(page.left), page.size)
        if not meta.continue_ and len(objects) <= MAX_OBJECTS:
            return objects, meta.resource_version
        query["continue"] = meta.continue_
    raise Unreachable(f"GET {path}: a list of more than {MAX_OBJECTS:,} objects, or without end")


def _decoded(
    path: str, items: list[msgspec.Raw], decoder: Decoder[T], objects: list[T], left_out: Unreadable | None
) -> Iterator[None]:
    """Add the ``items`` that are not null to ``objects``; each step is one.

    Raises: msgspec.DecodeError for one that cannot be read, where there is no account of those that are ``left_out``.
    """
    for item in items:
        if bytes(memoryview(item)[:5]) != b"null":
            try:
                found = decoder.decode(item)
                if not found.metadata.name:
                    raise msgspec.ValidationError(NAMELESS)
                objects.append(found)
            except msgspec.DecodeError as error:
                if left_out is None:
                    raise
                left_out.note(path, item, str(error))
        yield
