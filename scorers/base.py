"""The plugin interface: what a plugin receives, and what it returns.

Everything here is plain data or a small interface. A plugin does no I/O, reads no clock, and changes nothing that it is
given, except that a producer writes to the request, and any plugin to a ``Scratch`` of its own in it. It sees one
snapshot, which is valid until the call returns.

A plugin is a class with a type name (``type_name``, as written in ``EndpointPickerConfig``), a ``Parameters`` struct
that rejects unknown keys, and the method of its kind (a producer has two). It must be constructible with no arguments,
so every parameter has a default. docs/plugins.md shows a whole plugin in one file.

# What to implement

The four kinds are ``Producer``, ``Filter``, ``Scorer`` and ``Picker``, in the order in which they are called. Most
plugins need the method of their kind and nothing else. An ``Extractor`` learns from objects of the Kubernetes API, and
may be one of the four as well. Every plugin may also explain itself (``Plugin.details``) and
set response headers (``Plugin.response_headers``); one that learns defines the hooks of ``Learns``.

# Which number is better?

A **score** is from 0 to 1, and higher is better. Each score is multiplied by the weight in the configuration, and the
sum over all scorers is the candidate's total; again, higher is better. A scorer that gives all candidates the same
score has no opinion, since it changes every total alike. Every other number has its own direction:

    CachedPrefix.tokens, worth              more is better: the engine computes less
    Candidate.waiting, running, kv_usage    less is better: the engine is less busy
    Candidate.in_flight, in_flight_tokens   less is better: less of our work is under way there
    Observation.ttft_s, duration_s          less is better: the client waited less
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from scorers.candidate import Candidate, LoraState, Mode, Silence, Slot, Tier, TierReport
from scorers.observation import Held, Observation, Prediction

__all__ = [
    "CachedPrefix",
    "Candidate",
    "Detail",
    "Extractor",
    "Filter",
    "Held",
    "Learns",
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
    "Scratch",
    "Silence",
    "Slot",
    "Tier",
    "TierReport",
]
"""Everything that a plugin needs is imported from here, whichever module defines it."""


class Prompt(msgspec.Struct, frozen=True):
    """One prompt as canonical bytes.

    Two requests share a cached prefix only if their ``identity`` is equal and their ``data`` begins with the same
    bytes.
    """

    identity: bytes
    """Everything that makes equal text a different prefix: the kind of prompt, the target model or LoRA, the cache
    salt."""
    data: bytes
    """The prompt itself, 4 bytes per token: text as UTF-8, token ids as little-endian uint32."""


class CachedPrefix(msgspec.Struct):
    """How much of a request's prompts each endpoint holds in one tier, according to one producer."""

    tier: Tier
    total_tokens: int
    """Tokens in the full blocks of all prompts: the most that an endpoint could hold."""
    tokens: Mapping[Slot, int]
    """Contiguous tokens held from the start of each prompt, summed over the prompts. Endpoints that hold nothing are
    absent."""
    modes: Mapping[Slot, Mode] = {}
    """How the tokens of each endpoint are determined; an absent endpoint counts as ``Mode.APPROXIMATE``. Read-only:
    many requests share it."""
    worth: Mapping[Slot, float] | None = None
    """Set by a producer that weights tiers: what an endpoint holds in all tiers together, in equivalent tokens of GPU
    memory."""

    @property
    def weighed(self) -> Mapping[Slot, float]:
        """One number per endpoint, for readers that need just one: ``worth`` if set, else ``tokens``."""
        return self.tokens if self.worth is None else self.worth


class Request(msgspec.Struct, weakref=True):
    """One inference request as the plugins see it. Only the director and the producers write to its fields."""

    id: str
    """The header ``x-request-id``, else a new UUID."""
    model: str
    """The model that the client requested."""
    target_model: str
    """The model name sent to the engine, after any rewrite."""
    prompts: tuple[Prompt, ...] = ()
    """The request's prompts in canonical bytes; a batch request has several."""
    tokens: tuple[Prompt, ...] | None = None
    """The same prompts as the engine's token ids, with the identities of prompts that were sent as token ids. None if
    the request was not tokenized."""
    prompt_tokens: int = 1
    """At least 1. An estimate (4 bytes per token) unless the client sent token ids or ``tokens`` is set."""
    streaming: bool = False
    """Whether the client requested a streamed response."""
    headers: Mapping[str, str] = {}
    """Names are lower-case; of a repeated header, the last value is kept."""
    objective: str = ""
    """The name of the objective that the client requested; empty for none."""
    priority: int = 0
    """The priority of that objective; 0 without one. Below 0 the request may be shed."""
    fairness_id: str = "default-flow"
    """The flow that the request belongs to: the header ``x-llm-d-inference-fairness-id``."""
    received_s: float = 0.0
    """When the request arrived, on a monotonic clock. Units: seconds."""
    cached: dict[str, CachedPrefix] = {}
    """Cached prefixes by producer name, filled in by the producers before scoring."""
    pick_id: int = 0
    """The ledger's number of the pick; set before ``picked`` is called."""
    picked_s: float = 0.0
    """When the pick was made; set before ``picked`` is called. Units: seconds."""
    scratch: dict[Scratch[Any], Any] = {}
    """The plugins' working data. Only ``Scratch`` reads and writes it, and gives each part its type."""


T = TypeVar("T")


class Scratch(Generic[T]):
    """A plugin's own place in every request, for working data of type ``T`` that a later call needs again.

    A plugin makes one for each instance, or one for a module whose plugins share the data. Only code that has the
    object reaches the data, so two plugins never meet. A plugin that learns takes its data out in ``picked``, since the
    request outlives its decision; the data of a request that is refused goes with it.
    """

    __slots__ = ()

    def of(self, request: Request) -> T | None:
        """Return what was put into ``request``; None if nothing was."""
        return request.scratch.get(self)

    def put(self, request: Request, data: T) -> None:
        """Keep ``data`` in ``request``, instead of what was there."""
        request.scratch[self] = data

    def take(self, request: Request) -> T | None:
        """Return what was put into ``request`` and remove it; None if nothing was."""
        data: T | None = request.scratch.pop(self, None)
        return data


class Detail(msgspec.Struct, frozen=True):
    """One plugin's explanation of one candidate, for debugging."""

    text: str
    """A sentence with numbers and units."""
    numbers: Mapping[str, float] = {}
    """The same facts for programs: values by name, with the unit in the name."""


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a plugin that has none."""


P = TypeVar("P", bound=msgspec.Struct)


class Learns:
    """The hooks of a plugin that learns from the requests that were sent, whatever its kind.

    A plugin defines the hooks that it needs. The others are never called, so a plugin that learns nothing costs nothing
    after the pick.
    """

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Note that ``request`` goes to ``candidate``; for plugins that remember picks.

        Called exactly once per pick, in the same step as the pick.
        """

    def observed(self, observation: Observation) -> None:
        """Learn from a request that has ended and whose response was seen.

        Called at most once per request. Where responses pass through the picker, all of them are seen; in lean mode, a
        sample of them. A response from another endpoint than the one picked is never passed in.
        """

    def state(self) -> object:
        """Return what the plugin has learned, for ``/debug/plugins/state``; None if it keeps nothing.

        The result is plain data of bounded size, and never contains what a client sent.
        """
        return None


class Plugin(Learns, Generic[P]):
    """A named instance of a plugin type. ``name`` defaults to the type name."""

    type_name: ClassVar[str]
    Parameters: ClassVar[type[msgspec.Struct]] = NoParameters

    def __init__(self, parameters: P | None = None, name: str = "") -> None:
        self.parameters: P = parameters if parameters is not None else self.Parameters()  # type: ignore[assignment]
        self.name = name or self.type_name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.parameters!r})"

    def details(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Detail]:  # noqa: ARG002
        """Return one explanation per candidate, same order, or an empty sequence for none.

        Called before the pick is recorded, and only when an explanation was requested.
        """
        return ()

    @property
    def sets_response_headers(self) -> bool:
        """Whether ``response_headers`` may return anything; read once, at startup."""
        return type(self).response_headers is not Plugin.response_headers

    def response_headers(self, request: Request, candidate: Candidate) -> Mapping[str, str]:  # noqa: ARG002
        """Return headers to set on the response, with lower-case names. Called in the same step as the pick."""
        return {}


class Producer(Plugin[P], ABC):
    """A plugin that computes data for scorers to read, and learns from picks."""

    reads_tokens: ClassVar[bool] = False
    """Whether the producer reads ``Request.tokens``, so that prompts must be tokenized."""

    @abstractmethod
    def produce(self, request: Request, candidates: Sequence[Candidate]) -> None:
        """Write what endpoints hold of ``request`` into it; called before scoring."""

    @abstractmethod
    def picked(self, request: Request, candidate: Candidate) -> None:
        """Note that ``request`` goes to ``candidate``; called exactly once, in the same step as the pick."""


class Filter(Plugin[P], ABC):
    """A plugin that narrows the candidates."""

    @abstractmethod
    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that may serve ``request``, in the given order; none means the request is refused."""


class Scorer(Plugin[P], ABC):
    """A plugin that rates how good each candidate is for a request."""

    @abstractmethod
    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score in [0, 1] per candidate, same order, higher is better; all equal means no opinion."""


class Picker(Plugin[P], ABC):
    """A plugin that chooses among the candidates by their total scores."""

    @abstractmethod
    def pick(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:
        """Return the positions of the chosen candidates, at least one: the best first, then the fallbacks in order."""

    def pick_for(self, request: Request, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:  # noqa: ARG002
        """Return what ``pick`` returns; this is the method that is called.

        A picker that needs the request overrides it.
        """
        return self.pick(candidates, scores)


class Extractor(Plugin[P], ABC):
    """A plugin that learns from objects of the Kubernetes API, which a ``k8s-notification-source`` passes on.

    Its methods are called between decisions, and take microseconds at most. An object is plain data, as the API server
    writes it, with ``apiVersion`` and ``kind``; it is not changed, and not kept as a whole.
    """

    @abstractmethod
    def changed(self, item: Mapping[str, Any]) -> None:
        """Learn of an object that is there, or has changed. An object may come again as it was before."""

    @abstractmethod
    def removed(self, item: Mapping[str, Any]) -> None:
        """Learn that an object is gone, of which the metadata may be all that ``item`` has."""
