"""What a plugin sees and what it answers.

Everything here is data or a one-method seam. A plugin never does I/O, never reads a clock of its own and never
changes what it is given: one decision sees one snapshot, and it is over when the call returns.

A plugin is a class with a type name (``type_name``, as written in ``EndpointPickerConfig``), a ``Parameters`` struct
whose unknown keys are errors, and one method. It can be made with no arguments: every parameter has a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec

from scorers.candidate import Candidate, LoraState, Mode, Silence, Slot, Tier, TierReport
from scorers.observation import Held, Observation, Prediction

__all__ = [
    "CachedPrefix",
    "Candidate",
    "Detail",
    "Filter",
    "Held",
    "LoraState",
    "Mode",
    "NoParameters",
    "Observation",
    "Picker",
    "Plugin",
    "Prediction",
    "Producer",
    "Prompt",
    "Request",
    "Scorer",
    "Silence",
    "Slot",
    "Tier",
    "TierReport",
]
"""All that a plugin needs is imported from here, wherever it is written."""


class Prompt(msgspec.Struct, frozen=True):
    """One prompt as canonical bytes.

    Two requests share a cached prefix only if ``identity`` is equal and ``data`` begins alike.
    """

    identity: bytes
    """Everything that makes equal text a different prefix: kind of prompt, target model or LoRA, cache salt."""
    data: bytes
    """The prompt itself, 4 bytes to a token: text as UTF-8, token ids as little-endian uint32."""


class CachedPrefix(msgspec.Struct):
    """How much of a request's prompts each endpoint holds in one tier, as one producer sees it."""

    tier: Tier
    total_tokens: int
    """Tokens in the full blocks of all prompts: what could be held at most."""
    tokens: Mapping[Slot, int]
    """Contiguous tokens held from the start of each prompt, summed; endpoints that hold nothing are absent."""
    modes: Mapping[Slot, Mode] = {}
    """How that is known; of endpoints that are absent it is ``Mode.APPROXIMATE``. Nobody may change it: many requests
    share it."""
    worth: Mapping[Slot, float] | None = None
    """Of a producer that weighs tiers: what all that an endpoint holds is worth, in tokens of GPU memory."""

    @property
    def weighed(self) -> Mapping[Slot, float]:
        """What those read who want one number for each endpoint."""
        return self.tokens if self.worth is None else self.worth


class Request(msgspec.Struct, weakref=True):
    """One inference request as the plugins see it. Only the director and the producers write to it."""

    id: str
    model: str
    """The model the client asked for."""
    target_model: str
    """The model sent to the engine, after a rewrite."""
    prompts: tuple[Prompt, ...] = ()
    tokens: tuple[Prompt, ...] | None = None
    """The same prompts as the engine's token ids, with the identities of prompts that were sent so; None when nobody
    tokenized them."""
    prompt_tokens: int = 1
    """At least 1. An estimate (4 bytes a token) unless the client sent token ids or ``tokens`` are known."""
    streaming: bool = False
    headers: Mapping[str, str] = {}
    """Lower-case names; the last of repeated ones."""
    objective: str = ""
    """The name of the objective the client asked for; empty for none."""
    priority: int = 0
    """Of that objective; 0 for none. Below 0 the request may be shed."""
    fairness_id: str = "default-flow"
    received_s: float = 0.0
    """When it arrived, on a clock that never goes back. Units: seconds."""
    cached: dict[str, CachedPrefix] = {}
    """By producer name, filled in by the producers before scoring."""
    pick_id: int = 0
    """The ledger's number of the pick, and when it was made; set before anybody is told of the pick."""
    picked_s: float = 0.0
    pricing: object | None = None
    """What the cost producer makes of it, until the pick is recorded: ``scorers.cost.pricing.Pricing``."""
    prefix_match: object | None = None
    """What the prefix cache found, kept until the pick is recorded. Nobody else's."""


class Detail(msgspec.Struct, frozen=True):
    """What a plugin has to say of one candidate to people who ask."""

    text: str
    """A sentence with numbers and units."""
    numbers: Mapping[str, float] = {}
    """The same for programs, by name with its unit."""


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For plugins that take none."""


P = TypeVar("P", bound=msgspec.Struct)


class Plugin(Generic[P]):
    """A named instance of a plugin type. ``name`` defaults to the type."""

    type_name: ClassVar[str]
    Parameters: ClassVar[type[msgspec.Struct]] = NoParameters

    def __init__(self, parameters: P | None = None, name: str = "") -> None:
        self.parameters: P = parameters if parameters is not None else self.Parameters()  # type: ignore[assignment]
        self.name = name or self.type_name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.parameters!r})"

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Note that ``request`` goes to ``candidate``; called once, in the same step as the pick. For those that
        remember."""

    def observed(self, observation: Observation) -> None:
        """Learn from a request that has ended and whose response was seen; called once, for those that learn.

        All responses are seen where they pass the picker, else a sample of them; never one that another endpoint
        answered than the one picked.
        """

    @property
    def sets_response_headers(self) -> bool:
        """Whether ``response_headers`` may say something; asked once, at start."""
        return type(self).response_headers is not Plugin.response_headers

    def response_headers(self, request: Request, candidate: Candidate) -> Mapping[str, str]:  # noqa: ARG002
        """Headers to set on the response, lower-case names; asked in the same step as the pick."""
        return {}

    def details(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Detail]:  # noqa: ARG002
        """What is to be said of each candidate beside a score, same order; or nothing at all. Asked before the pick is
        recorded, when somebody wants an explanation."""
        return ()

    def state(self) -> object:
        """What the plugin has learned, as plain data of bounded size, for people who ask (``/debug/plugins/state``);
        None for one that keeps nothing. Never what a client sent."""
        return None


class Producer(Plugin[P], ABC):
    """Computes data that scorers read, and learns from picks."""

    reads_tokens: ClassVar[bool] = False
    """Whether it reads ``Request.tokens``, so that somebody must write them."""

    @abstractmethod
    def produce(self, request: Request, candidates: Sequence[Candidate]) -> None:
        """Write what is known about ``request`` into it, before scoring."""

    @abstractmethod
    def picked(self, request: Request, candidate: Candidate) -> None:
        """Note that ``request`` goes to ``candidate``; called once, in the same step as the pick."""


class Filter(Plugin[P], ABC):
    """Narrows the candidates."""

    @abstractmethod
    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return those that may serve ``request``, in the given order; none means the request is refused."""


class Scorer(Plugin[P], ABC):
    """Says how good each candidate is for a request."""

    @abstractmethod
    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """One score in [0, 1] per candidate, same order, higher is better; all equal means no opinion."""


class Picker(Plugin[P], ABC):
    """Chooses by total score."""

    @abstractmethod
    def pick(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:
        """Positions of the chosen candidates, the best first, the rest fallbacks in order; at least one."""

    def pick_for(self, request: Request, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:  # noqa: ARG002
        """The same, for pickers to whom the request matters; this is what is called."""
        return self.pick(candidates, scores)
