"""Decode a watch's events: the event and its object in one pass, which is half of the cost of an event."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

import msgspec

from epp.kube.objects import Decoder, Object, WatchEvent, names_its_fields

T = TypeVar("T", bound=Object)

_EVENT = Decoder(WatchEvent)


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An event that was decoded with its object: ``type`` is any but ERROR."""

    type: str
    object: T


class EventDecoder(Generic[T]):
    """Decodes the lines of a watch of one kind."""

    def __init__(self, kind: type[T]) -> None:
        self.one: Decoder[T] = Decoder(kind)
        in_one_pass = names_its_fields(cast("type[object]", kind))
        self._both: msgspec.json.Decoder[Change[T]] | None
        self._both = msgspec.json.Decoder(Change[kind]) if in_one_pass else None  # type: ignore[valid-type]

    def decode(self, raw: bytes) -> Change[T] | WatchEvent:
        """Return the event with its object, or with the JSON of the object: of an error, or where it has a null
        or no name.

        Raises: msgspec.DecodeError for what is no event, whatever its object is.
        """
        if self._both is not None:
            try:
                change = self._both.decode(raw)
            except (msgspec.ValidationError, RecursionError, UnicodeDecodeError):  # it may be the object's fault
                return _EVENT.decode(raw)
            if change.type == "BOOKMARK" or (change.type != "ERROR" and change.object.metadata.name):
                return change
        return _EVENT.decode(raw)
