"""Where the proxy sends a client's request by its path: the routes and the retries."""

from __future__ import annotations

from datetime import timedelta

from envoy_data_plane.envoy.config.core.v3 import (
    DataSource,
    RuntimeFractionalPercent,
)
from envoy_data_plane.envoy.config.route.v3 import (
    DirectResponseAction,
    HeaderMatcher,
    RetryPolicy,
    RetryPolicyRetryBackOff,
    RetryPolicyRetryHostPredicate,
    Route,
    RouteAction,
    RouteActionUpgradeConfig,
    RouteMatch,
)
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import ExtProcOverrides, ExtProcPerRoute, ProcessingMode
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher
from envoy_data_plane.envoy.type.v3 import FractionalPercent, FractionalPercentDenominatorType
from envoy_data_plane.google.protobuf import Any

from epp.extproc.access_log import CLOSED, SAMPLE
from epp.standalone.clusters import ENDPOINTS
from epp.standalone.conversation import EXT_PROC, processing_mode, tunnel_mode
from epp.standalone.paths import closed_pattern, open_pattern
from epp.standalone.settings import ProxySettings, ResponseMode

A_DAY = timedelta(days=1)
"""For limits that must exist, or a vanished peer leaves resources behind forever, but must never cut an answer."""
RETRIES = 16
"""Enough for a request to find the only live endpoint of a dozen: a refused connection costs milliseconds, and each
takes an endpoint out of round robin. Source: 5 of 6 gone, 0 of 2,000 requests refused; with 3 retries, 30 %.
"""
WEBSOCKET = "websocket"
CLOSED_TO_CLIENTS = "this path is not open to clients; the router's operator can open it with --open-path PATH"
UNREACHED = "connect-failure,refused-stream,reset-before-request"
"""Retried only if no endpoint can have begun the work: a prompt must not be computed twice."""


def routes(settings: ProxySettings) -> list[Route]:
    """Return the routes. Paths that are not open are refused.

    A WebSocket has a route of its own, since its body never ends. A lean proxy has one more, taken by a random sample,
    that shows the picker whole responses.
    """
    sampled = settings.response_mode is ResponseMode.LEAN and settings.sample_rate > 0
    refused = [_refused(RouteMatch(prefix="/"))] if open_pattern(settings.open_paths) is not None else []
    if (closed := closed_pattern(settings.open_paths)) is not None:
        refused_first = [_refused(RouteMatch(safe_regex=RegexMatcher(regex=closed)))]
    else:
        refused_first = []
    everything = Route(name="all", match=_open(settings), route=_to_endpoints())
    sample = [_sample(settings)] if sampled else []
    return [*refused_first, _websocket(settings), *sample, everything, *refused]


def _open(settings: ProxySettings) -> RouteMatch:
    """Return the match of every path that is open to clients."""
    pattern = open_pattern(settings.open_paths)
    return RouteMatch(prefix="/") if pattern is None else RouteMatch(safe_regex=RegexMatcher(regex=pattern))


def _sample(settings: ProxySettings) -> Route:
    match = _open(settings)
    match.runtime_fraction = RuntimeFractionalPercent(
        default_value=FractionalPercent(
            numerator=round(settings.sample_rate * 1_000_000),
            denominator=FractionalPercentDenominatorType.MILLION,
        )
    )
    mode = processing_mode(settings.request_mode, ResponseMode.FULL)
    return Route(name=SAMPLE, match=match, route=_to_endpoints(), typed_per_filter_config=_showing(mode))


def _websocket(settings: ProxySettings) -> Route:
    """Return the WebSocket route; it includes HTTP/2, where Envoy turns an extended CONNECT into the same request."""
    match = _open(settings)
    match.headers = [
        HeaderMatcher(name=":method", string_match=StringMatcher(exact="GET")),
        HeaderMatcher(name="upgrade", string_match=StringMatcher(exact=WEBSOCKET, ignore_case=True)),
    ]
    action = _to_endpoints()
    action.upgrade_configs = [RouteActionUpgradeConfig(upgrade_type=WEBSOCKET, enabled=True)]
    return Route(name=WEBSOCKET, match=match, route=action, typed_per_filter_config=_showing(tunnel_mode()))


def _showing(mode: ProcessingMode) -> dict[str, Any]:
    return {EXT_PROC: Any.pack(ExtProcPerRoute(overrides=ExtProcOverrides(processing_mode=mode)))}


def _refused(match: RouteMatch) -> Route:
    """Return a route that refuses requests without asking an engine or the picker."""
    return Route(
        name=CLOSED,
        match=match,
        direct_response=DirectResponseAction(status=404, body=DataSource(inline_string=CLOSED_TO_CLIENTS)),
        typed_per_filter_config={EXT_PROC: Any.pack(ExtProcPerRoute(disabled=True))},
    )


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
