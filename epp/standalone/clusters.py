"""The two clusters that a proxy connects to: the endpoints and the picker."""

from __future__ import annotations

from datetime import timedelta

from betterproto2 import Message
from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    Cluster,
    ClusterCommonLbConfig,
    ClusterDiscoveryType,
    ClusterEdsClusterConfig,
    LoadBalancingPolicy,
    LoadBalancingPolicyPolicy,
    OutlierDetection,
    UpstreamConnectionOptions,
)
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    ApiVersion,
    ConfigSource,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    HttpProtocolOptions,
    KeepaliveSettings,
    PathConfigSource,
    RoutingPriority,
    SocketAddress,
    TcpKeepalive,
    TypedExtensionConfig,
    WatchedDirectory,
)
from envoy_data_plane.envoy.config.endpoint.v3 import (
    ClusterLoadAssignment,
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.override_host.v3 import (
    OverrideHost,
    OverrideHostOverrideHostSource,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.round_robin.v3 import RoundRobin
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import HttpProtocolOptions as UpstreamHttp
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import HttpProtocolOptionsExplicitHttpConfig
from envoy_data_plane.envoy.type.metadata.v3 import MetadataKey, MetadataKeyPathSegment
from envoy_data_plane.envoy.type.v3 import Percent
from envoy_data_plane.google.protobuf import Any

from epp.standalone.settings import MIB, ProxySettings, RequestMode

ENDPOINTS = "endpoints"
PICKER = "picker"
DESTINATION_NAMESPACE = "envoy.lb"
DESTINATION_KEY = "x-gateway-destination-endpoint"

UNLIMITED = 1_000_000_000
"""For limits whose default (1,024) is below what one busy picker has in flight."""
CONNECT_TIMEOUT = timedelta(seconds=2)
"""A guess: engines accept from the kernel's backlog even while busy, so silence means that the host is down."""
KEEP_ALIVE = timedelta(seconds=4)
"""Less than the 5 s after which uvicorn, and so vLLM, closes an idle connection: no request may meet a closing one."""
TCP_KEEPALIVE = TcpKeepalive(keepalive_probes=3, keepalive_time=60, keepalive_interval=10)
"""An engine may compute for many minutes without sending a byte; a vanished peer is still detected in 90 s."""


def extension(name: str, config: Message) -> TypedExtensionConfig:
    """Wrap ``config`` as the configuration of an Envoy extension."""
    return TypedExtensionConfig(name=name, typed_config=Any.pack(config))


def tcp_address(host: str, port: int) -> Address:
    """Return a socket address; ``host`` is an IP literal without brackets."""
    return Address(socket_address=SocketAddress(address=host, port_value=port))


def member(host: str, port: int) -> LbEndpoint:
    """Return one member of a cluster."""
    return LbEndpoint(endpoint=Endpoint(address=tcp_address(host, port)))


def assignment(cluster: str, members: list[LbEndpoint]) -> ClusterLoadAssignment:
    """Return the list of the members of ``cluster``."""
    return ClusterLoadAssignment(cluster_name=cluster, endpoints=[LocalityLbEndpoints(lb_endpoints=members)])


def endpoints_cluster(settings: ProxySettings) -> Cluster:
    """Return the cluster of engines: the picker's destination is used, or round robin without one.

    The destination is read from the dynamic metadata, which only filters can write, and never from a header, which
    clients can. The router's retries go through a list of destinations in order.
    """
    destination = MetadataKey(key=DESTINATION_NAMESPACE, path=[MetadataKeyPathSegment(key=DESTINATION_KEY)])
    return Cluster(
        name=ENDPOINTS,
        type=ClusterDiscoveryType.EDS,
        eds_cluster_config=ClusterEdsClusterConfig(
            eds_config=ConfigSource(
                resource_api_version=ApiVersion.V3,
                path_config_source=PathConfigSource(
                    path=str(settings.endpoints_file),
                    watched_directory=WatchedDirectory(path=str(settings.endpoints_file.parent)),
                ),
            )
        ),
        connect_timeout=CONNECT_TIMEOUT,
        per_connection_buffer_limit_bytes=settings.max_request_bytes,
        circuit_breakers=_unlimited(),
        outlier_detection=_unreachable(),
        common_lb_config=ClusterCommonLbConfig(healthy_panic_threshold=Percent(value=1.0)),
        upstream_connection_options=UpstreamConnectionOptions(tcp_keepalive=TCP_KEEPALIVE),
        typed_extension_protocol_options=_protocol(
            HttpProtocolOptionsExplicitHttpConfig(http_protocol_options=Http1ProtocolOptions()),
            HttpProtocolOptions(idle_timeout=KEEP_ALIVE),
        ),
        load_balancing_policy=_policy(
            "envoy.load_balancing_policies.override_host",
            OverrideHost(
                override_host_sources=[OverrideHostOverrideHostSource(metadata=destination)],
                fallback_policy=_policy("envoy.load_balancing_policies.round_robin", RoundRobin()),
            ),
        ),
    )


def picker_cluster(settings: ProxySettings) -> Cluster:
    """Return the picker's cluster: one HTTP/2 connection per worker thread, with as many streams as it allows.

    In full duplex Envoy waits for the picker without a limit, so pings detect whether it is still there. With a
    buffered body the wait has a limit, and a picker that hangs must not break off answers that do not involve it, so
    there are no pings.
    """
    asked_s = timedelta(seconds=settings.picker_timeout_s)
    pings = KeepaliveSettings(interval=asked_s, timeout=asked_s)
    return Cluster(
        name=PICKER,
        type=ClusterDiscoveryType.STATIC,
        load_assignment=assignment(PICKER, [member(settings.picker_host, settings.picker_port)]),
        connect_timeout=timedelta(seconds=1),
        per_connection_buffer_limit_bytes=settings.max_request_bytes,
        circuit_breakers=_unlimited(),
        typed_extension_protocol_options=_protocol(
            HttpProtocolOptionsExplicitHttpConfig(
                http2_protocol_options=Http2ProtocolOptions(
                    max_concurrent_streams=1_000_000,
                    initial_stream_window_size=1 * MIB,
                    initial_connection_window_size=64 * MIB,
                    connection_keepalive=pings if settings.request_mode is RequestMode.DUPLEX else None,
                )
            ),
            HttpProtocolOptions(idle_timeout=timedelta(0)),
        ),
    )


def _policy(name: str, config: Message) -> LoadBalancingPolicy:
    return LoadBalancingPolicy(policies=[LoadBalancingPolicyPolicy(typed_extension_config=extension(name, config))])


def _protocol(explicit: HttpProtocolOptionsExplicitHttpConfig, common: HttpProtocolOptions) -> dict[str, Any]:
    options = UpstreamHttp(explicit_http_config=explicit, common_http_protocol_options=common)
    return {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": Any.pack(options)}


def _unreachable() -> OutlierDetection:
    """Take an endpoint that cannot be reached, or answers 5xx five times in a row, out of round robin for 2 seconds.

    This affects only round robin, which a request falls back to after the picker's choices; those are tried in any
    case. If no endpoint is left, all of them are used again.
    """
    return OutlierDetection(
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=1,
        enforcing_consecutive_local_origin_failure=100,
        interval=timedelta(seconds=0.5),
        base_ejection_time=timedelta(seconds=2),
        max_ejection_time=timedelta(seconds=2),
        max_ejection_percent=100,
        enforcing_success_rate=0,
        enforcing_local_origin_success_rate=0,
        enforcing_failure_percentage=0,
        enforcing_failure_percentage_local_origin=0,
    )


def _unlimited() -> CircuitBreakers:
    return CircuitBreakers(
        thresholds=[
            CircuitBreakersThresholds(
                priority=priority,
                max_connections=UNLIMITED,
                max_pending_requests=UNLIMITED,
                max_requests=UNLIMITED,
                max_retries=UNLIMITED,
            )
            for priority in (RoutingPriority.DEFAULT, RoutingPriority.HIGH)
        ]
    )
