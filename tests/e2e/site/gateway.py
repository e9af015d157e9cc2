"""A gateway as the endpoint-picker protocol describes it: both bodies full duplex, and a subset hint.

Here the hint comes from a request header, so that a test can choose it; a gateway takes it from its routes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from envoy_data_plane.envoy.config.accesslog.v3 import AccessLog
from envoy_data_plane.envoy.config.bootstrap.v3 import Bootstrap
from envoy_data_plane.envoy.config.core.v3 import DataSource, SubstitutionFormatString
from envoy_data_plane.envoy.extensions.access_loggers.file.v3 import FileAccessLog
from envoy_data_plane.envoy.extensions.filters.http.header_to_metadata.v3 import (
    Config,
    ConfigKeyValuePair,
    ConfigRule,
    ConfigValueEncode,
    ConfigValueType,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpFilter,
)
from envoy_data_plane.google.protobuf import Any
from google.protobuf.struct_pb2 import Value

from epp.standalone.bootstrap import bootstrap
from epp.standalone.conversation import SUBSET_NAMESPACE
from epp.standalone.settings import ProxySettings

LIST_HEADER, STRING_HEADER = "x-test-subset-list", "x-test-subset-string"
TOLD = "told.log"
"""The file, beside that of the endpoints, in which the gateway logs each request's ``cost`` from the metadata."""
SUBSET_KEY = "x-gateway-destination-endpoint-subset"


def gateway(settings: ProxySettings) -> Bootstrap:
    """Return a bootstrap for ``settings`` with a filter that turns the test's headers into the subset hint."""
    made = bootstrap(settings)
    assert made.static_resources is not None
    network_filter = made.static_resources.listeners[0].filter_chains[0].filters[0]
    assert network_filter.typed_config is not None
    manager = network_filter.typed_config.unpack()
    assert isinstance(manager, HttpConnectionManager)
    hint = Config(
        request_rules=[
            ConfigRule(
                header=header,
                remove=True,
                on_header_present=ConfigKeyValuePair(
                    metadata_namespace=SUBSET_NAMESPACE, key=SUBSET_KEY, type=kind, encode=encode
                ),
            )
            for header, kind, encode in (
                (LIST_HEADER, ConfigValueType.PROTOBUF_VALUE, ConfigValueEncode.BASE64),
                (STRING_HEADER, ConfigValueType.STRING, ConfigValueEncode.NONE),
            )
        ]
    )
    manager.http_filters.insert(
        0, HttpFilter(name="envoy.filters.http.header_to_metadata", typed_config=Any.pack(hint))
    )
    told = FileAccessLog(
        path=str(settings.endpoints_file.parent / TOLD),
        log_format=SubstitutionFormatString(
            text_format_source=DataSource(inline_string="%DYNAMIC_METADATA(envoy.lb:cost)%\n")
        ),
    )
    manager.access_log.append(AccessLog(name="envoy.access_loggers.file", typed_config=Any.pack(told)))
    network_filter.typed_config = Any.pack(manager)
    return made


def subset_list(addresses: Sequence[str]) -> dict[str, str]:
    """Return the headers that make a hint of list type."""
    value = Value()
    value.list_value.SetInParent()  # an empty list is a list
    value.list_value.extend(addresses)
    return {LIST_HEADER: base64.b64encode(value.SerializeToString()).decode()}


def subset_string(addresses: Sequence[str]) -> dict[str, str]:
    """Return the headers that make a hint of string type."""
    return {STRING_HEADER: ",".join(addresses)}
