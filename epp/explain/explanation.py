"""The debug port's answer about one request: data and one sentence, without prompts or values of headers.

``tierwise explain`` reads it, and so this module imports nothing of the picker.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MAX_NAME = 256
"""Characters of a name that a client chose."""


class AnsweredBy(msgspec.Struct, frozen=True):
    """Identifies the picker that answered, since a machine may run several."""

    pool: str
    pid: int


class Asked(msgspec.Struct, frozen=True):
    """The parts of the request that are not secret."""

    path: str
    model: str
    target_model: str
    prompts: int
    prompt_tokens: int
    """An estimate, 4 bytes to a token, unless the client sent token ids or ``token_ids`` are known."""
    streaming: bool
    priority: int
    token_ids: str | None = None
    """The state of the engine's own token ids: ``tokenized``, ``sent_as_tokens``, or why they are unknown; None if
    unneeded.
    """


class Part(msgspec.Struct, frozen=True):
    """The score of one candidate by one scorer."""

    value: float
    weight: float
    product: float


class Detail(msgspec.Struct, frozen=True):
    """A plugin's remark about one candidate, as in ``scorers.base``."""

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
    """``subset``, ``stale metrics``, ``never read``, ``out of reach``, or a filter's name; None for a scored one."""
    tokens: Mapping[str, int] = {}
    """Cached tokens of the prompt, by producer."""
    tokens_by_tier: Mapping[str, int] = {}
    modes_by_tier: Mapping[str, str] = {}
    """How the cached tokens are known: precise, horizon or approximate."""
    scores: Mapping[str, Part] = {}
    total: float | None = None
    details: Mapping[str, Detail] = {}
    """The remarks of plugins about the endpoint, by plugin name."""
    pick: int | None = None
    """1 for the pick; 2 and more for the fallbacks in order."""


class FilterVerdict(msgspec.Struct, frozen=True):
    """The result of one filter."""

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
    """None if the request could not be parsed."""
    candidates: tuple[Considered, ...] = ()
    filters: tuple[FilterVerdict, ...] = ()
    picker: str = ""
    failed_plugins: tuple[str, ...] = ()
    """Plugins that raised an exception and were skipped."""
    answered_by: AnsweredBy | None = None
