"""Plugins of the Go picker whose work is always done here: they may be declared, but need not be."""

from __future__ import annotations

import msgspec

from scorers.base import NoParameters, Plugin
from scorers.parameters import check_range


class InflightLoadParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Parameters that would change what is counted are refused."""

    add_estimated_output_tokens: bool = False
    output_ratio: float = 1.5
    max_estimated_output_tokens: int | None = None
    prefix_match_info_producer_name: str | None = None
    """Ignored: tokens that any producer reports as cached are not counted, whatever this names."""
    sync_cross_replica_state: bool = True
    """Ignored: replicas share no state."""

    def __post_init__(self) -> None:
        if self.add_estimated_output_tokens:
            raise ValueError("addEstimatedOutputTokens: output tokens are not estimated here; set it to false")
        check_range("outputRatio", self.output_ratio, 0)
        check_range("maxEstimatedOutputTokens", self.max_estimated_output_tokens, 0)


class InflightLoadProducer(Plugin[InflightLoadParameters]):
    """Counts requests and uncached tokens in flight, as the picker always does."""

    type_name = "inflight-load-producer"
    Parameters = InflightLoadParameters


class SessionIdParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where to find a session's id: one of the two fields."""

    header_name: str | None = None
    cookie_name: str | None = None

    def __post_init__(self) -> None:
        if self.header_name is not None and self.cookie_name is not None:
            raise ValueError("headerName and cookieName exclude each other; keep one")


class SessionIdProducer(Plugin[SessionIdParameters]):
    """Finds a session's id; the plugins that need it do so on their own."""

    type_name = "session-id-producer"
    Parameters = SessionIdParameters


class EndpointNotificationSource(Plugin[NoParameters]):
    """Notifies plugins of endpoints that come and go, which the pool always does."""

    type_name = "endpoint-notification-source"


class SheddableEviction(Plugin[NoParameters]):
    """Allows the eviction of requests of negative priority; ``flowControl.enableEviction`` never evicts others."""

    type_name = "sheddable-eviction-filter"


class PriorityThenTimeEviction(Plugin[NoParameters]):
    """Evicts the lowest priority first, and the newest of these, as is always the case here."""

    type_name = "priority-then-time-eviction-order-policy"


IMPLIED = (
    InflightLoadProducer, SessionIdProducer, EndpointNotificationSource,
    SheddableEviction, PriorityThenTimeEviction,
)  # fmt: skip
