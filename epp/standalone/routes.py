"""Where the proxy sends a client's request, by its path: the routes and the retries."""

from __future__ import annotations

from datetime import timedelta

from envoy_data_plane.envoy.config.core.v3 import RuntimeFractionalPercent
from envoy_data_plane.envoy.config.route.v3 import (
    RetryPolicy,
    RetryPolicyRetryBackOff,
    RetryPolicyRetryHostPredicate,
    Route,
    RouteAction,
    RouteMatch,
)
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import ExtProcOverrides, ExtProcPerRoute
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.type.v3 import FractionalPercent, FractionalPercentDenominatorType
from envoy_data_plane.google.protobuf import Any

from epp.accesslog import SAMPLE
from epp.options import ResponseMode
from epp.standalone.clusters import ENDPOINTS
from epp.standalone.conversation import EXT_PROC, processing_mode
from epp.standalone.settings import ProxySettings

A_DAY = timedelta(days=1)
"""For limits that must exist, or a vanished peer leaves something behind for ever, but must never cut an answer."""
RETRIES = 16
"""So many that a request finds the one endpoint of a dozen that is left: a refused connection costs milliseconds, and
each leaves an endpoint out of the turns. Source: 5 of 6 gone, 0 of 2,000 requests refused; with 3 retries, 30 %."""
UNREACHED = "connect-failure,refused-stream,reset-before-request"
"""Retried only when no endpoint can have begun the work: a prompt must not be computed twice."""


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
