"""Our subset of the messages against an independent codec: every message, every field, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from epp.pb import (
    accesslog_entry_pb2,
    accesslog_service_pb2,
    core_pb2,
    ext_proc_pb2,
    http_status_pb2,
    processing_mode_pb2,
)

FILES = (core_pb2, http_status_pb2, processing_mode_pb2, ext_proc_pb2, accesslog_entry_pb2, accesslog_service_pb2)


def nested(descriptor: Descriptor) -> Iterator[Descriptor]:
    yield descriptor
    for inner in descriptor.nested_types:
        if not inner.GetOptions().map_entry:
            yield from nested(inner)


def enums(file: Any) -> Iterator[EnumDescriptor]:
    yield from file.DESCRIPTOR.enum_types_by_name.values()
    for message in file.DESCRIPTOR.message_types_by_name.values():
        yield from message.enum_types


MESSAGES = [d for file in FILES for m in file.DESCRIPTOR.message_types_by_name.values() for d in nested(m)]
ENUMS = [enum for file in FILES for enum in enums(file)]


def theirs(descriptor: Descriptor | EnumDescriptor) -> Any:
    """The class of the same full name in envoy-data-plane, which joins nested names and writes Http for HTTP."""
    package = descriptor.file.package
    name = descriptor.full_name.removeprefix(package + ".").replace(".", "").replace("HTTP", "Http")
    return getattr(import_module(f"envoy_data_plane.{package}"), name)


def sample(field: FieldDescriptor) -> Any:
    """A value that no other field of the message has."""
    number = field.number
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    kinds = {
        FieldDescriptor.CPPTYPE_BOOL: True,
        FieldDescriptor.CPPTYPE_UINT32: 1000 + number,
        FieldDescriptor.CPPTYPE_UINT64: 2**40 + number,
        FieldDescriptor.CPPTYPE_STRING: f"é{number}"
        if field.type == FieldDescriptor.TYPE_STRING
        else b"\xff%d" % number,
    }
    return kinds[field.cpp_type]


def fill(message: Message, field: FieldDescriptor) -> None:
    """Set ``field``, and everything below it."""
    value = getattr(message, field.name)
    inner = field.message_type
    if inner is None:
        if field.is_repeated:
            value.extend([sample(field), sample(field)])
        else:
            setattr(message, field.name, sample(field))
    elif inner.GetOptions().map_entry:
        if inner.fields_by_name["value"].message_type is None:
            value["key"] = "text"
        else:
            value["key"].update({"a": "b", "c": [1.5, True, None, {"d": "e"}]})
    elif inner.full_name.startswith("google.protobuf."):
        known = {"Struct": {"a": {"b": 2.5}}, "UInt32Value": {"value": 7}}
        whole = known.get(
            inner.name, {"seconds": 1_000_000_000 if inner.name == "Timestamp" else 3, "nanos": 5_000_000}
        )
        if inner.name == "Struct":
            value.update(whole)
        else:
            for name, part in whole.items():
                setattr(value, name, part)
    elif field.is_repeated:
        fill_all(value.add())
    else:
        value.SetInParent()
        fill_all(value)


def fill_all(message: Message) -> None:
    for field in message.DESCRIPTOR.fields:
        fill(message, field)  # of a oneof, the last stays


def full_samples(descriptor: Descriptor) -> Iterator[Message]:
    """A message with everything set, and one for each field alone."""
    whole = GetMessageClass(descriptor)()
    fill_all(whole)
    yield whole
    for field in descriptor.fields:
        alone = GetMessageClass(descriptor)()
        fill(alone, field)
        yield alone


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # theirs, of a field that older proxies send
@pytest.mark.parametrize("descriptor", MESSAGES, ids=lambda d: d.full_name)
def test_both_codecs_read_each_other(descriptor: Descriptor) -> None:
    for ours in full_samples(descriptor):
        said = MessageToDict(ours)
        heard = theirs(descriptor).parse(ours.SerializeToString())
        assert heard.to_dict() == said
        written = bytes(theirs(descriptor).from_dict(said))
        assert GetMessageClass(descriptor).FromString(written) == ours


@pytest.mark.parametrize("descriptor", MESSAGES, ids=lambda d: d.full_name)
def test_fields_have_the_same_names_and_numbers(descriptor: Descriptor) -> None:
    known = {
        name: next(iter(field.metadata.values())) for name, field in theirs(descriptor).__dataclass_fields__.items()
    }
    for field in descriptor.fields:
        assert known[field.name].number == field.number, field.full_name


@pytest.mark.parametrize("descriptor", ENUMS, ids=lambda d: d.full_name)
def test_enum_values_have_the_same_numbers(descriptor: EnumDescriptor) -> None:
    for value in descriptor.values:
        assert theirs(descriptor)(value.number).value == value.number
