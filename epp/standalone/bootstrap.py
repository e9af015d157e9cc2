"""The proxy's whole configuration as one value, and as the text that Envoy reads."""

from __future__ import annotations

from envoy_data_plane.envoy.config.bootstrap.v3 import Admin, Bootstrap, BootstrapStaticResources
from envoy_data_plane.envoy.config.core.v3 import Node

from epp.standalone.clusters import endpoints_cluster, picker_cluster, tcp_address
from epp.standalone.listener import listener
from epp.standalone.settings import ProxySettings


def bootstrap(settings: ProxySettings) -> Bootstrap:
    """The configuration of a proxy that asks the picker on ``picker_port`` about every request."""
    return Bootstrap(
        node=Node(id="tierwise", cluster="tierwise"),
        admin=Admin(address=tcp_address("127.0.0.1", settings.admin_port)),
        static_resources=BootstrapStaticResources(
            listeners=[listener(settings)],
            clusters=[endpoints_cluster(settings), picker_cluster(settings)],
        ),
    )
