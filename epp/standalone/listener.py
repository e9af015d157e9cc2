"""What a proxy does with a client's request, from its first byte to the log of its end."""

from __future__ import annotations

from datetime import timedelta

from envoy_data_plane.envoy.config.accesslog.v3 import AccessLog, AccessLogFilter
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation, HeaderMutationRemoveOnMatch
from envoy_data_plane.envoy.config.core.v3 import (
    ApiVersion,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    HttpProtocolOptions,
    HttpProtocolOptionsHeadersWithUnderscoresAction,
)
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.config.route.v3 import (
    RouteConfiguration,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.access_loggers.grpc.v3 import (
    CommonGrpcAccessLogConfig,
    HttpGrpcAccessLogConfig,
)
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerInternalAddressConfig,
    HttpConnectionManagerPathWithEscapedSlashesAction,
    HttpConnectionManagerUpgradeConfig,
    HttpFilter,
)
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    HeaderMutation as EarlyHeaderMutation,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.google.protobuf import Any

from epp.extproc.access_log import NAMESPACE
from epp.standalone.clusters import (
    DESTINATION_KEY,
    TCP_KEEPALIVE,
    extension,
    tcp_address,
)
from epp.standalone.conversation import EXT_PROC, external_processor, picker_service
from epp.standalone.local_replies import has_status
from epp.standalone.routes import A_DAY, WEBSOCKET, routes
from epp.standalone.settings import MIB, ProxySettings, ResponseMode

ENDS_REPORTED_EVERY = timedelta(milliseconds=50)
HOST_OF_OLD_CLIENTS = "tierwise"
"""HTTP/1.0 does not require a Host header from clients, but engines require one from Envoy."""
STEERING_HEADERS = StringMatcher(prefix="x-envoy-")
"""Headers by which Envoy lets clients of private networks set time limits and retries."""


def listener(settings: ProxySettings) -> Listener:
    """Return the listener that clients connect to."""
    return Listener(
        name="clients",
        address=tcp_address(settings.host, settings.port),
        per_connection_buffer_limit_bytes=settings.max_request_bytes,
        tcp_keepalive=TCP_KEEPALIVE,
        filter_chains=[
            FilterChain(
                filters=[
                    Filter(
                        name="envoy.filters.network.http_connection_manager",
                        typed_config=Any.pack(connection_manager(settings)),
                    )
                ]
            )
        ],
    )


def connection_manager(settings: ProxySettings) -> HttpConnectionManager:
    """Return how HTTP works with clients; ``epp.standalone.bootstrap`` adds the proxy's own answers.

    No client may control the proxy by headers, wherever it connects from.
    """
    lean = settings.response_mode is ResponseMode.LEAN
    return HttpConnectionManager(
        stat_prefix="clients",
        route_config=RouteConfiguration(
            name="routes", virtual_hosts=[VirtualHost(name="all", domains=["*"], routes=routes(settings))]
        ),
        http_filters=[
            HttpFilter(name=EXT_PROC, typed_config=Any.pack(external_processor(settings))),
            HttpFilter(name="envoy.filters.http.router", typed_config=Any.pack(Router(suppress_envoy_headers=True))),
        ],
        access_log=[log_to_picker(None if lean else AccessLogFilter.from_dict(has_status(404)))],
        # Otherwise Envoy closes the connection after every 400, even the picker's; it still does so if it cannot parse.
        stream_error_on_invalid_http_message=True,
        early_header_mutation_extensions=[
            extension(
                "envoy.http.early_header_mutation.header_mutation",
                EarlyHeaderMutation(
                    mutations=[
                        HeaderMutation(remove=DESTINATION_KEY),
                        HeaderMutation(remove_on_match=HeaderMutationRemoveOnMatch(key_matcher=STEERING_HEADERS)),
                    ]
                ),
            )
        ],
        use_remote_address=True,
        internal_address_config=HttpConnectionManagerInternalAddressConfig(),
        preserve_external_request_id=True,
        normalize_path=True,
        merge_slashes=True,
        # As the engines do, which make no difference: a path must mean the same to them and to the routes.
        path_with_escaped_slashes_action=HttpConnectionManagerPathWithEscapedSlashesAction.UNESCAPE_AND_FORWARD,
        upgrade_configs=[HttpConnectionManagerUpgradeConfig(upgrade_type=WEBSOCKET, enabled=False)],  # but on its route
        common_http_protocol_options=HttpProtocolOptions(
            idle_timeout=timedelta(hours=1),
            headers_with_underscores_action=HttpProtocolOptionsHeadersWithUnderscoresAction.ALLOW,
        ),
        http_protocol_options=Http1ProtocolOptions(accept_http_10=True, default_host_for_http_10=HOST_OF_OLD_CLIENTS),
        http2_protocol_options=Http2ProtocolOptions(
            allow_connect=True,  # how HTTP/2 opens a WebSocket; plain CONNECT has no route
            max_concurrent_streams=100_000,
            initial_stream_window_size=1 * MIB,
            initial_connection_window_size=64 * MIB,
        ),
        request_headers_timeout=timedelta(seconds=60),
        stream_idle_timeout=A_DAY,
        stream_flush_timeout=timedelta(minutes=5),
    )


def log_to_picker(only: AccessLogFilter | None) -> AccessLog:
    """Return a log that reports to the picker how each request that passes ``only`` ended, many in one message.

    A lean proxy reports all requests. One that shows responses anyway reports only refused paths, which the picker is
    not asked about.
    """
    return AccessLog(
        filter=only,
        name="envoy.access_loggers.http_grpc",
        typed_config=Any.pack(
            HttpGrpcAccessLogConfig(
                common_config=CommonGrpcAccessLogConfig(
                    log_name=NAMESPACE,
                    grpc_service=picker_service(),
                    transport_api_version=ApiVersion.V3,
                    buffer_flush_interval=ENDS_REPORTED_EVERY,
                ),
                additional_response_headers_to_log=["content-type"],
            )
        ),
    )
