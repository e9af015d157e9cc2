"""What a proxy does with a client's request, from its first byte to the log of its end."""

from __future__ import annotations

from datetime import timedelta

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLog,
    AccessLogFilter,
    ComparisonFilter,
    ComparisonFilterOp,
    StatusCodeFilter,
)
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation, HeaderMutationRemoveOnMatch
from envoy_data_plane.envoy.config.core.v3 import (
    ApiVersion,
    GrpcService,
    GrpcServiceEnvoyGrpc,
    Http2ProtocolOptions,
    HttpProtocolOptions,
    HttpProtocolOptionsHeadersWithUnderscoresAction,
    RuntimeFractionalPercent,
    RuntimeUInt32,
)
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.config.route.v3 import (
    RetryPolicy,
    RetryPolicyRetryBackOff,
    RetryPolicyRetryHostPredicate,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.access_loggers.grpc.v3 import (
    CommonGrpcAccessLogConfig,
    HttpGrpcAccessLogConfig,
)
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    ExternalProcessorRouteCacheAction,
    ExtProcOverrides,
    ExtProcPerRoute,
    MetadataOptions,
    MetadataOptionsMetadataNamespaces,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerInternalAddressConfig,
    HttpFilter,
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    HeaderMutation as EarlyHeaderMutation,
)
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.envoy.type.v3 import (
    FractionalPercent,
    FractionalPercentDenominatorType,
    HttpStatus,
    StatusCode,
)
from envoy_data_plane.google.protobuf import Any

from epp.accesslog import NAMESPACE, SAMPLE
from epp.admission import MOST_PATIENCE_S
from epp.options import ResponseMode
from epp.standalone.clusters import (
    DESTINATION_KEY,
    DESTINATION_NAMESPACE,
    ENDPOINTS,
    PICKER,
    TCP_KEEPALIVE,
    extension,
    tcp_address,
)
from epp.standalone.settings import MIB, ProxySettings, RequestMode

EXT_PROC = "envoy.filters.http.ext_proc"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"

A_DAY = timedelta(days=1)
"""For limits that must exist, or a vanished peer leaves something behind for ever, but must never cut an answer."""
ENDS_REPORTED_EVERY = timedelta(milliseconds=50)
RETRIES = 16
"""So many that a request finds the one endpoint of a dozen that is left: a refused connection costs milliseconds, and
each leaves an endpoint out of the turns. Source: 5 of 6 gone, 0 of 2,000 requests refused; with 3 retries, 30 %."""
UNREACHED = "connect-failure,refused-stream,reset-before-request"
"""Retried only when no endpoint can have begun the work: a prompt must not be computed twice."""
STEERING_HEADERS = StringMatcher(prefix="x-envoy-")
"""By which Envoy lets clients of private networks set time limits and retries."""

SEND = ProcessingModeHeaderSendMode.SEND
SKIP = ProcessingModeHeaderSendMode.SKIP


_HUNG_PICKER = ResponseMapper(
    filter=AccessLogFilter(
        status_code_filter=StatusCodeFilter(
            comparison=ComparisonFilter(
                op=ComparisonFilterOp.EQ, value=RuntimeUInt32(default_value=504, runtime_key="tierwise.hung_picker")
            )
        )
    ),
    status_code=503,
)
"""A picker that does not answer in time is a picker that is not there. Envoy's own word for it cannot be configured;
nothing else here has a time limit that Envoy would answer with 504."""


def listener(settings: ProxySettings) -> Listener:
    """Where clients connect."""
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
    """How HTTP is spoken to clients. Nobody is trusted to steer the proxy by headers, wherever they connect from."""
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
        access_log=[completions_log()] if lean else [],
        local_reply_config=LocalReplyConfig(mappers=[_HUNG_PICKER]),
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
        common_http_protocol_options=HttpProtocolOptions(
            idle_timeout=timedelta(hours=1),
            headers_with_underscores_action=HttpProtocolOptionsHeadersWithUnderscoresAction.ALLOW,
        ),
        http2_protocol_options=Http2ProtocolOptions(
            max_concurrent_streams=100_000,
            initial_stream_window_size=1 * MIB,
            initial_connection_window_size=64 * MIB,
        ),
        request_headers_timeout=timedelta(seconds=60),
        stream_idle_timeout=A_DAY,
        stream_flush_timeout=timedelta(minutes=5),
    )


def routes(settings: ProxySettings) -> list[Route]:
    """One route for all; a lean proxy has a second, taken by the sample, that shows the picker whole responses."""
    everything = Route(name="all", match=RouteMatch(prefix="/"), route=_to_endpoints())
    if settings.response_mode is ResponseMode.FULL or settings.sample_rate <= 0:
        return [everything]
    sample = Route(
        name=SAMPLE,
        match=RouteMatch(
            prefix="/",
            runtime_fraction=RuntimeFractionalPercent(
                default_value=FractionalPercent(
                    numerator=round(settings.sample_rate * 1_000_000),
                    denominator=FractionalPercentDenominatorType.MILLION,
                )
            ),
        ),
        route=_to_endpoints(),
        typed_per_filter_config={
            EXT_PROC: Any.pack(
                ExtProcPerRoute(
                    overrides=ExtProcOverrides(
                        processing_mode=processing_mode(settings.request_mode, ResponseMode.FULL)
                    )
                )
            )
        },
    )
    return [sample, everything]


def _to_endpoints() -> RouteAction:
    return RouteAction(
        cluster=ENDPOINTS,
        timeout=timedelta(0),
        idle_timeout=A_DAY,
        retry_policy=RetryPolicy(
            retry_on=UNREACHED,
            num_retries=RETRIES,
            retry_host_predicate=[
                RetryPolicyRetryHostPredicate(
                    name="envoy.retry_host_predicates.previous_hosts",
                    typed_config=Any.pack(PreviousHostsPredicate()),
                )
            ],
            host_selection_retry_max_attempts=8,
            retry_back_off=RetryPolicyRetryBackOff(
                base_interval=timedelta(milliseconds=5), max_interval=timedelta(milliseconds=50)
            ),
        ),
    )


def external_processor(settings: ProxySettings) -> ExternalProcessor:
    """The conversation with the picker."""
    return ExternalProcessor(
        grpc_service=_picker_service(),
        failure_mode_allow=settings.fail_open,
        status_on_error=HttpStatus(code=StatusCode.ServiceUnavailable),
        processing_mode=processing_mode(settings.request_mode, settings.response_mode, settings.response_headers),
        # For requests whose model is rewritten, so that its name can be put back.
        allow_mode_override=settings.response_mode is ResponseMode.LEAN,
        message_timeout=timedelta(seconds=settings.picker_timeout_s),
        max_message_timeout=timedelta(seconds=MOST_PATIENCE_S),
        # The route, and with it the sample, was drawn before the picker was asked.
        route_cache_action=ExternalProcessorRouteCacheAction.RETAIN,
        metadata_options=MetadataOptions(
            forwarding_namespaces=MetadataOptionsMetadataNamespaces(untyped=[SUBSET_NAMESPACE, DESTINATION_NAMESPACE]),
            receiving_namespaces=MetadataOptionsMetadataNamespaces(untyped=[DESTINATION_NAMESPACE, NAMESPACE]),
        ),
    )


def processing_mode(request: RequestMode, response: ResponseMode, response_headers: bool = False) -> ProcessingMode:
    """Which parts of an exchange go to the picker. A duplex direction must include its trailers.

    A lean stream carries the request's two messages and stays open until the request ends, which tells the picker that
    it has ended even when the access log never says how. With ``response_headers`` it carries those, too; trailers that
    it waits for keep it open.
    """
    duplex = request is RequestMode.DUPLEX
    full = response is ResponseMode.FULL
    streamed = ProcessingModeBodySendMode.FULL_DUPLEX_STREAMED if duplex else ProcessingModeBodySendMode.STREAMED
    return ProcessingMode(
        request_header_mode=SEND,
        request_body_mode=streamed if duplex else ProcessingModeBodySendMode.BUFFERED,
        request_trailer_mode=SEND if duplex else SKIP,
        # Where there is nothing to change, the access log tells the same, and later more.
        response_header_mode=SEND if full or response_headers else SKIP,
        response_body_mode=streamed if full else ProcessingModeBodySendMode.NONE,
        response_trailer_mode=SEND if full or response_headers else SKIP,
    )


def completions_log() -> AccessLog:
    """Reports how each request ended to the picker, many in a message."""
    return AccessLog(
        name="envoy.access_loggers.http_grpc",
        typed_config=Any.pack(
            HttpGrpcAccessLogConfig(
                common_config=CommonGrpcAccessLogConfig(
                    log_name=NAMESPACE,
                    grpc_service=_picker_service(),
                    transport_api_version=ApiVersion.V3,
                    buffer_flush_interval=ENDS_REPORTED_EVERY,
                ),
                additional_response_headers_to_log=["content-type"],
            )
        ),
    )


def _picker_service() -> GrpcService:
    return GrpcService(envoy_grpc=GrpcServiceEnvoyGrpc(cluster_name=PICKER))
