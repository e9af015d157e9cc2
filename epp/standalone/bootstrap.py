"""The proxy's whole configuration as one value, and as the text that Envoy reads."""

from __future__ import annotations

from typing import Any

import msgspec
from envoy_data_plane.envoy.config.bootstrap.v3 import (
    Admin,
    Bootstrap,
    BootstrapStaticResources,
    LayeredRuntime,
    RuntimeLayer,
)
from envoy_data_plane.envoy.config.core.v3 import Node
from envoy_data_plane.google.protobuf import Struct

from epp.standalone.clusters import endpoints_cluster, picker_cluster, tcp_address
from epp.standalone.listener import listener
from epp.standalone.local_replies import local_replies
from epp.standalone.settings import ProxySettings

PATTERN_SIZE = {"re2.max_program_size.error_level": 100_000, "re2.max_program_size.warn_level": 100_000}
"""The largest program that a pattern of paths may compile to. Envoy's own limit, 100, protects against configurations
of strangers.
"""


def bootstrap(settings: ProxySettings) -> Bootstrap:
    """Return the configuration of a proxy that asks the picker on ``picker_port`` about every request.

    The proxy's own answers are missing; ``written`` adds them.
    """
    return Bootstrap(
        node=Node(id="tierwise", cluster="tierwise"),
        admin=Admin(address=tcp_address("127.0.0.1", settings.admin_port)),
        layered_runtime=LayeredRuntime(
            layers=[RuntimeLayer(name="tierwise", static_layer=Struct.from_dict(PATTERN_SIZE))]
        ),
        static_resources=BootstrapStaticResources(
            listeners=[listener(settings)],
            clusters=[endpoints_cluster(settings), picker_cluster(settings)],
        ),
    )


def written(made: Bootstrap, settings: ProxySettings) -> str:
    """Return ``made`` as the text that Envoy reads, with the proxy's own answers."""
    document: dict[str, Any] = made.to_dict()
    (clients,) = document["staticResources"]["listeners"]
    manager = clients["filterChains"][0]["filters"][0]["typedConfig"]
    manager["localReplyConfig"] = local_replies(settings)
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode()
