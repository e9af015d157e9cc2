"""What the proxy sends to the picker about a request, and how long it waits for answers."""

from __future__ import annotations

from datetime import timedelta

from envoy_data_plane.envoy.config.core.v3 import GrpcService, GrpcServiceEnvoyGrpc
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    ExternalProcessorRouteCacheAction,
    MetadataOptions,
    MetadataOptionsMetadataNamespaces,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.type.v3 import HttpStatus, StatusCode

from epp.extproc.access_log import NAMESPACE
from epp.flowcontrol.admission import MOST_PATIENCE_S
from epp.standalone.clusters import DESTINATION_NAMESPACE, PICKER
from epp.standalone.settings import ProxySettings, RequestMode, ResponseMode

EXT_PROC = "envoy.filters.http.ext_proc"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"

SEND = ProcessingModeHeaderSendMode.SEND
SKIP = ProcessingModeHeaderSendMode.SKIP


def external_processor(settings: ProxySettings) -> ExternalProcessor:
    """Return the configuration of the ext-proc filter."""
    return ExternalProcessor(
        grpc_service=picker_service(),
        failure_mode_allow=settings.fail_open,
        status_on_error=HttpStatus(code=StatusCode.ServiceUnavailable),
        processing_mode=processing_mode(settings.request_mode, settings.response_mode, settings.response_headers),
        # For requests whose model is rewritten, so that its name can be restored in the response.
        allow_mode_override=settings.response_mode is ResponseMode.LEAN,
        message_timeout=timedelta(seconds=settings.picker_timeout_s),
        max_message_timeout=timedelta(seconds=MOST_PATIENCE_S),
        # Envoy has drawn the route, and so the sample, before it asks the picker.
        route_cache_action=ExternalProcessorRouteCacheAction.RETAIN,
        metadata_options=MetadataOptions(
            forwarding_namespaces=MetadataOptionsMetadataNamespaces(untyped=[SUBSET_NAMESPACE, DESTINATION_NAMESPACE]),
            receiving_namespaces=MetadataOptionsMetadataNamespaces(untyped=[DESTINATION_NAMESPACE, NAMESPACE]),
        ),
    )


def processing_mode(request: RequestMode, response: ResponseMode, response_headers: bool = False) -> ProcessingMode:
    """Return which parts of an exchange go to the picker. A duplex direction must include its trailers.

    A lean stream carries the request's two messages and stays open until the request ends, which notifies the picker of
    the end even if no access log entry ever reports it. With ``response_headers`` it carries those, too; it stays open
    because it waits for trailers.
    """
    duplex = request is RequestMode.DUPLEX
    full = response is ResponseMode.FULL
    streamed = ProcessingModeBodySendMode.FULL_DUPLEX_STREAMED if duplex else ProcessingModeBodySendMode.STREAMED
    return ProcessingMode(
        request_header_mode=SEND,
        request_body_mode=streamed if duplex else ProcessingModeBodySendMode.BUFFERED,
        request_trailer_mode=SEND if duplex else SKIP,
        # If there is nothing to change, the access log reports the same later, and more.
        response_header_mode=SEND if full or response_headers else SKIP,
        response_body_mode=streamed if full else ProcessingModeBodySendMode.NONE,
        response_trailer_mode=SEND if full or response_headers else SKIP,
    )


def tunnel_mode() -> ProcessingMode:
    """Return which parts of a tunnel (a WebSocket) go to the picker.

    These are the request's headers, by which it picks, and those of the answer; the contents of the tunnel are not
    shown. Trailers never come, so waiting for them keeps the stream open until the tunnel ends: until then the picker
    counts it.
    """
    return ProcessingMode(
        request_header_mode=SEND,
        request_body_mode=ProcessingModeBodySendMode.NONE,
        request_trailer_mode=SKIP,
        response_header_mode=SEND,
        response_body_mode=ProcessingModeBodySendMode.NONE,
        response_trailer_mode=SEND,
    )


def picker_service() -> GrpcService:
    """Return the picker as a gRPC service, for a filter or a log."""
    return GrpcService(envoy_grpc=GrpcServiceEnvoyGrpc(cluster_name=PICKER))
