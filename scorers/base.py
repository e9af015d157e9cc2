"""What a plugin sees and what it answers.

Everything here is data or a one-method seam. A plugin never does I/O, never reads a clock of its own and never
changes what it is given: one decision sees one snapshot, and it is over when the call returns.

A plugin is a class with a type name (``type_name``, as written in ``EndpointPickerConfig``), a ``Parameters`` struct
whose unknown keys are errors, and one method. It can be made with no arguments: every parameter has a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar, Generic, NewType, TypeVar

import msgspec

Slot = NewType("Slot", int)
"""An endpoint's number in every per-endpoint table (bit masks, lists). Reused only after the endpoint was removed."""


class Tier(Enum):
    """A kind of memory that holds KV blocks, fastest first."""

    GPU = "gpu"
    CPU = "cpu"
    STORAGE = "storage"

    __hash__ = object.__hash__  # members are equal only to themselves; Enum's own is Python code, three times as slow


class Mode(Enum):
    """How it is known what an endpoint holds, the best first."""

    PRECISE = "precise"
    """The engine tells each block that it keeps or drops."""
    HORIZON = "horizon"
    """The engine tells how far eviction has come, and we remember what we sent when."""
    APPROXIMATE = "approximate"
    """We keep our own LRU of what we sent, as large as the tier."""

    __hash__ = object.__hash__


class TierReport(msgspec.Struct, frozen=True):
    """What an engine says of one of its tiers; None for what it does not say. Units: its own tokens."""

    capacity_tokens: int | None = None
    """What the tier can hold; 0 where nothing is looked up in it."""
    resident_tokens: int | None = None
    """What it holds and can be found."""
    horizon_s: float | None = None
    """The latest last use of anything that was evicted, on the clock that picks are timed by, not on the engine's.
    Minus infinity before the first eviction: everything that entered is there."""
    store_after: int | None = None
    """A prompt's tokens enter when computed for the so-manieth time; 0: nothing enters."""
    stores_decoded: bool | None = None
    """Whether generated tokens enter, too."""
    block_tokens: int | None = None
    """Kept or dropped together: a hit is a whole number of these."""
    load_token_s: float | None = None
    """What its loads to the GPU took for each token, on average: where those who learn it may begin."""
    horizon_tokens: int | None = None
    """Of what was last used at the horizon, what is still there: its beginning. Decoded tokens go first."""


class LoraState(msgspec.Struct, frozen=True):
    """Which LoRA adapters an engine has loaded or has requests waiting for."""

    running: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    max_loras: int = 0


class Candidate(msgspec.Struct, frozen=True):
    """One endpoint in one decision. Replaced as a whole when anything about it changes."""

    slot: Slot
    address: str
    """Where requests go: ``10.0.0.7:8000``; IPv6 in brackets."""
    name: str = ""
    """``namespace/name``."""
    labels: Mapping[str, str] = {}
    waiting: int = 0
    """Requests queued in the engine: as scraped, plus those of ours that no scrape can have seen and will queue."""
    running: int = 0
    """Requests in the engine's batch: as scraped, plus those of ours that no scrape can have seen and that will run."""
    kv_usage: float = 0.0
    """Share of the engine's GPU KV blocks in use, 0 to 1: as scraped, plus what our unseen picks must compute there."""
    in_flight: int = 0
    """Requests that this picker sent there and that have not ended (exact, counted at the pick)."""
    in_flight_tokens: int = 0
    """Prompt tokens of those that the endpoint held in no tier, and whose answer nobody has seen begin."""
    fresh: bool = True
    """False when no scrape succeeded within the staleness threshold; the numbers are then the last known."""
    block_tokens: int | None = None
    """Tokens per KV block, as the engine reports it."""
    gpu_blocks: int | None = None
    """KV blocks in GPU memory, as the engine reports it."""
    lora: LoraState = LoraState()
    attributes: Mapping[str, float] = {}
    """Numbers of the endpoint by name, as the configuration's ``customMetrics`` read them."""
    tiers: Mapping[Tier, TierReport] = {}
    """What the engine says of its tiers; those that it does not speak of are absent."""


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


class Held(msgspec.Struct, frozen=True, gc=False):
    """What was believed, at the pick, of one tier of the endpoint chosen."""

    tier: Tier
    tokens: int
    """Contiguous tokens of the request's prompts, from their start; also those that a faster tier holds, too."""
    mode: Mode


class Prediction(msgspec.Struct, frozen=True):
    """What was known at the pick of a request and of the endpoint chosen, kept until the request ends."""

    candidate: Candidate
    """The endpoint as it was just before the pick: what was in flight there was ahead of this request."""
    held: tuple[Held, ...]
    """One for each tier that a producer speaks of, fastest first."""
    prompt_tokens: int
    """``Request.prompt_tokens``: at least 1, perhaps an estimate."""
    waited_s: float = 0.0
    """From the request's arrival to the pick."""

    @property
    def held_tokens(self) -> int:
        """What the endpoint holds in any tier."""
        most = 0
        for held in self.held:  # half of what ``max`` takes
            if held.tokens > most:
                most = held.tokens
        return most

    @property
    def uncached_tokens(self) -> int:
        """What the endpoint must compute."""
        return max(0, self.prompt_tokens - self.held_tokens)


class Observation(msgspec.Struct, frozen=True):
    """What was seen of a finished request, beside what was predicted of it. Whatever nobody saw is None."""

    prediction: Prediction
    status: int | None = None
    """Of HTTP."""
    streaming: bool = False
    """Whether the response was streamed: else ``ttft_s`` is the time to the whole answer."""
    ttft_s: float | None = None
    """From the pick to the first byte of the response's body."""
    duration_s: float | None = None
    """From the pick to the end."""
    prompt_tokens: int | None = None
    """As the engine counts them."""
    cached_tokens: int | None = None
    """Of those, what the engine had cached; None too for an engine that does not say."""
    cached_by_tier: Mapping[Tier, int] = {}
    """The same by the tier that it was taken from, each token once; empty for an engine that does not say."""
    output_tokens: int | None = None


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
