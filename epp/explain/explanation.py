"""What the debug port answers about one request: data, and one sentence. Never a prompt, never a header's value.

``tierwise explain`` reads it, and so nothing of the picker is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MAX_NAME = 256
"""Characters of a name that a client chose."""


class AnsweredBy(msgspec.Struct, frozen=True):
    """Which picker says so: there may be several on a machine."""

    pool: str
    pid: int


class Asked(msgspec.Struct, frozen=True):
    """The request, as far as it is nobody's secret."""

    path: str
    model: str
    target_model: str
    prompts: int
    prompt_tokens: int
    """An estimate, 4 bytes to a token, unless the client sent token ids or ``token_ids`` are known."""
    streaming: bool
    priority: int
    token_ids: str | None = None
    """Whether the engine's own are known: ``tokenized``, ``sent_as_tokens``, or why they are not; None where nobody
    asks for them."""


class Part(msgspec.Struct, frozen=True):
    """What one scorer said of one candidate."""

    value: float
    weight: float
    product: float


class Detail(msgspec.Struct, frozen=True):
    """What a plugin has to say of one candidate: as in ``scorers.base``."""

    text: str
    numbers: Mapping[str, float] = {}


class Considered(msgspec.Struct, frozen=True):
    """One endpoint of the pool in this decision."""

    address: str
    name: str
    waiting: int
    running: int
    kv_usage: float
    in_flight: int
    in_flight_tokens: int
    fresh: bool
    dropped_by: str | None = None
    """``subset``, ``stale metrics``, ``never read``, ``out of reach``, or a filter's name; None for one that was
    scored."""
    tokens: Mapping[str, int] = {}
    """Held of the prompt, by producer."""
    tokens_by_tier: Mapping[str, int] = {}
    modes_by_tier: Mapping[str, str] = {}
    """How those are known: precise, horizon or approximate."""
    scores: Mapping[str, Part] = {}
    total: float | None = None
    details: Mapping[str, Detail] = {}
    """What plugins have to say of it beside a score, by name."""
    pick: int | None = None
    """1 for the pick, 2 and on for the fallbacks in order."""


class FilterVerdict(msgspec.Struct, frozen=True):
    """What one filter did."""

    name: str
    type: str
    seen: int
    kept: int
    dropped: tuple[str, ...]


class Refusal(msgspec.Struct, frozen=True):
    """Why the request would be refused."""

    status: int
    code: str
    message: str


class Explanation(msgspec.Struct, frozen=True):
    """Where a request would go, and why."""

    reason: str
    pick: str | None = None
    fallbacks: tuple[str, ...] = ()
    refusal: Refusal | None = None
    request: Asked | None = None
    """None where it was not understood."""
    candidates: tuple[Considered, ...] = ()
    filters: tuple[FilterVerdict, ...] = ()
    picker: str = ""
    failed_plugins: tuple[str, ...] = ()
    """Those that raised, and were skipped."""
    answered_by: AnsweredBy | None = None
