"""A descriptor pool of our own, and the classes made from it.

Protobuf's default pool refuses a second, different description of a name. ``proto/`` describes a subset of Envoy's and
gRPC's messages under their own names (gRPC paths and ``Any`` need them), so whoever imports another distribution of
them into the same process (grpcio-health-checking, a control plane library, a plugin) would otherwise break it or us.
"""

from __future__ import annotations

from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

POOL = DescriptorPool()
for known in (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
    POOL.AddSerializedFile(known.DESCRIPTOR.serialized_pb)


def publish(module: dict[str, object], described: bytes) -> None:
    """Add one file to the pool and its top-level messages, enums and enum values to ``module``."""
    file = POOL.AddSerializedFile(described)
    module["DESCRIPTOR"] = file
    for name, message in file.message_types_by_name.items():
        module[name] = GetMessageClass(message)
    for name, enum in file.enum_types_by_name.items():
        module[name] = EnumTypeWrapper(enum)
        module.update((value.name, value.number) for value in enum.values)
