"""Keep a session where it began: as a wish (the scorer) or as a rule (the filter)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from scorers.affinity.session import Affinity, CarriedByClients, RememberedHere, SessionTable
from scorers.base import Candidate, Filter, Plugin, Request, Scorer
from scorers.parameters import check_range, check_written

DEFAULT_TOKEN_HEADER = "x-session-token"  # noqa: S105
DEFAULT_ID_HEADER = "x-session-id"


class Strategy(Enum):
    """Who remembers."""

    ENCODED_ENDPOINT_HEADER = "encoded_endpoint_header"
    SESSION_ID = "session_id"


class EncodedHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the strategy ``encoded_endpoint_header``."""

    header: str = DEFAULT_TOKEN_HEADER
    """Of the response, and of the next request."""

    def __post_init__(self) -> None:
        check_written("header", self.header)


class SessionSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a session's id is looked for."""

    header: str = ""
    attribute: str = ""

    def __post_init__(self) -> None:
        if self.attribute:
            raise ValueError("attribute: requests have no attributes here; name a header instead")
        check_written("header", self.header)


class SessionIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Of the strategy ``session_id``."""

    sources: tuple[SessionSource, ...] = (SessionSource(DEFAULT_ID_HEADER),)
    """The first that is not empty counts."""
    eviction_ttl_seconds: float = 300.0
    """How long a session is remembered after its last request."""
    eviction_sweep_seconds: float = 10.0
    """How often what is not remembered any more gives its memory back."""

    def __post_init__(self) -> None:
        check_written("sources", self.sources)
        check_range("evictionTtlSeconds", self.eviction_ttl_seconds, 0)
        check_range("evictionSweepSeconds", self.eviction_sweep_seconds, 0)


class SessionAffinityParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The strategy, and the parameters of both."""

    strategy: Strategy = Strategy.ENCODED_ENDPOINT_HEADER
    profile_name: str = ""
    """The profile whose pick counts; there is one."""
    encoded_endpoint_header_config: EncodedHeader = EncodedHeader()
    session_id_config: SessionIds = SessionIds()
    header_name: str = ""
    """Deprecated place of ``encodedEndpointHeaderConfig.header``, which it overrides."""


def affinity_of(parameters: SessionAffinityParameters) -> Affinity:
    """The strategy at work."""
    if parameters.strategy is Strategy.ENCODED_ENDPOINT_HEADER:
        return CarriedByClients(parameters.header_name or parameters.encoded_endpoint_header_config.header)
    ids = parameters.session_id_config
    table = SessionTable(ids.eviction_ttl_seconds, ids.eviction_sweep_seconds)
    return RememberedHere([source.header for source in ids.sources], table)


class _Affine(Plugin[SessionAffinityParameters]):
    """What is common to the wish and the rule: the strategy, which is told of picks and has its say in responses."""

    Parameters = SessionAffinityParameters

    def __init__(self, parameters: SessionAffinityParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.affinity = affinity_of(self.parameters)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Note the pick."""
        self.affinity.picked(request, candidate)

    @property
    def sets_response_headers(self) -> bool:
        """Only where clients carry the session."""
        return self.affinity.tells_clients

    def response_headers(self, request: Request, candidate: Candidate) -> Mapping[str, str]:  # noqa: ARG002
        """The session's header, where clients carry it."""
        return self.affinity.response_headers(candidate)


class SessionAffinityScorer(_Affine, Scorer[SessionAffinityParameters]):
    """Score the session's endpoint 1 and the others 0; 0 for all where there is no session, or its endpoint is gone.

    Reads: Request.headers, received_s; Candidate.name, address.
    """

    type_name = "session-affinity-scorer"

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """One score per candidate."""
        scores = [0.0] * len(candidates)
        position = self.affinity.position(request, candidates)
        if position is not None:
            scores[position] = 1.0
        return scores


class SessionAffinityFilter(_Affine, Filter[SessionAffinityParameters]):
    """Keep the session's endpoint only; everything where there is no session, or its endpoint is gone.

    Reads: Request.headers, received_s; Candidate.name, address.
    """

    type_name = "session-affinity-filter"

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The session's endpoint, or everything."""
        position = self.affinity.position(request, candidates)
        return candidates if position is None else [candidates[position]]
