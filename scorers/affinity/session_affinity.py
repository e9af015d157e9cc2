"""Keep a session at its endpoint: as a preference (the scorer) or as a rule (the filter)."""

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
    """Where the session's endpoint is remembered."""

    ENCODED_ENDPOINT_HEADER = "encoded_endpoint_header"
    SESSION_ID = "session_id"


class EncodedHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the strategy ``encoded_endpoint_header``."""

    header: str = DEFAULT_TOKEN_HEADER
    """Name of the header, in the response and in the next request."""

    def __post_init__(self) -> None:
        check_written("header", self.header)


class SessionSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the session id is read from."""

    header: str = ""
    attribute: str = ""

    def __post_init__(self) -> None:
        if self.attribute:
            raise ValueError("attribute: requests have no attributes here; name a header instead")
        check_written("header", self.header)


class SessionIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Parameters of the strategy ``session_id``."""

    sources: tuple[SessionSource, ...] = (SessionSource(DEFAULT_ID_HEADER),)
    """The sources of the id; the first that is not empty is used."""
    eviction_ttl_seconds: float = 300.0
    """How long a session is remembered after its last request."""
    eviction_sweep_seconds: float = 10.0
    """How often the memory of expired sessions is freed."""

    def __post_init__(self) -> None:
        check_written("sources", self.sources)
        check_range("evictionTtlSeconds", self.eviction_ttl_seconds, 0)
        check_range("evictionSweepSeconds", self.eviction_sweep_seconds, 0)


class SessionAffinityParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The strategy, and the parameters of both strategies."""

    strategy: Strategy = Strategy.ENCODED_ENDPOINT_HEADER
    profile_name: str = ""
    """Accepted for compatibility: the profile whose pick counts; there is only one."""
    encoded_endpoint_header_config: EncodedHeader = EncodedHeader()
    session_id_config: SessionIds = SessionIds()
    header_name: str = ""
    """Deprecated form of ``encodedEndpointHeaderConfig.header``, which it overrides."""


def affinity_of(parameters: SessionAffinityParameters) -> Affinity:
    """Return the configured strategy, ready for use."""
    if parameters.strategy is Strategy.ENCODED_ENDPOINT_HEADER:
        return CarriedByClients(parameters.header_name or parameters.encoded_endpoint_header_config.header)
    ids = parameters.session_id_config
    table = SessionTable(ids.eviction_ttl_seconds, ids.eviction_sweep_seconds)
    return RememberedHere([source.header for source in ids.sources], table)


class _Affine(Plugin[SessionAffinityParameters]):
    """The common part of scorer and filter: it passes picks and response headers on to the strategy."""

    Parameters = SessionAffinityParameters

    def __init__(self, parameters: SessionAffinityParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.affinity = affinity_of(self.parameters)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Note the pick in the strategy."""
        self.affinity.picked(request, candidate)

    @property
    def sets_response_headers(self) -> bool:
        """True if clients carry the session."""
        return self.affinity.sets_header

    def response_headers(self, request: Request, candidate: Candidate) -> Mapping[str, str]:  # noqa: ARG002
        """Return the session's header if clients carry it."""
        return self.affinity.response_headers(candidate)


class SessionAffinityScorer(_Affine, Scorer[SessionAffinityParameters]):
    """Score the session's endpoint 1 and the others 0; 0 for all if there is no session or its endpoint is missing.

    Reads: Request.headers, received_s; Candidate.name, address.
    """

    type_name = "session-affinity-scorer"

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, 1 at the session's endpoint."""
        scores = [0.0] * len(candidates)
        position = self.affinity.position(request, candidates)
        if position is not None:
            scores[position] = 1.0
        return scores


class SessionAffinityFilter(_Affine, Filter[SessionAffinityParameters]):
    """Keep only the session's endpoint; keep all if there is no session or its endpoint is missing.

    Reads: Request.headers, received_s; Candidate.name, address.
    """

    type_name = "session-affinity-filter"

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the session's endpoint, or all candidates."""
        position = self.affinity.position(request, candidates)
        return candidates if position is None else [candidates[position]]
