"""Send a request where its first token comes soonest, by an estimate in seconds."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.base import Candidate, Detail, NoParameters, Observation, Producer, Request, Scorer
from scorers.cost.constants import Constants, Lane, checked
from scorers.cost.model import CostModel
from scorers.cost.pricing import PRICING, Pricing
from scorers.cost.report import state_of
from scorers.cost.sentences import detail
from scorers.parameters import check_range

SCALE_S = 0.1
"""Differences well below this hardly change a score."""


class TierCostParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where learning starts, and whether it continues.

    A constant that is not configured follows from ``model`` and ``gpu``; without these it is a guess.
    """

    model: str = ""
    """The model that the endpoints serve, by its Hugging Face name: ``Qwen/Qwen3-32B``."""
    gpu: str = ""
    """The GPU of the endpoints: ``h100``."""
    gpus_per_endpoint: int = 1
    """Number of tensor-parallel ranks per endpoint."""
    prefill_tokens_per_second: float | None = None
    """Prefill rate of one endpoint for short prompts."""
    cpu_load_tokens_per_second: float | None = None
    """Rate at which one endpoint loads from CPU memory."""
    storage_load_tokens_per_second: float | None = None
    others_weight: float = 1.0
    """The weight of a second by which this request delays others; 0 considers its own time to first token only."""
    learn: bool = True
    """Whether to learn from observations; false keeps the configured constants."""
    kind_label: str = ""
    """The endpoint label that distinguishes kinds of hardware; empty assumes one kind until endpoints differ."""

    def __post_init__(self) -> None:
        if bool(self.model) != bool(self.gpu):
            raise ValueError("model and gpu go together; write both, or neither")
        check_range("gpusPerEndpoint", self.gpus_per_endpoint, 1, 1024)
        check_range("othersWeight", self.others_weight, 0, 100)
        check_range("prefillTokensPerSecond", self.prefill_tokens_per_second, 10, 1e8)
        check_range("cpuLoadTokensPerSecond", self.cpu_load_tokens_per_second, 10, 1e9)
        check_range("storageLoadTokensPerSecond", self.storage_load_tokens_per_second, 1, 1e9)

    def constants(self, known: Constants | None = None) -> Constants:
        """Return the constants with which learning starts; ``known`` follow from the model and the hardware."""
        start = known or Constants()
        cpu, storage = start.cpu, start.storage
        if self.cpu_load_tokens_per_second is not None:
            cpu = Lane(cpu.fixed_s, 1.0 / self.cpu_load_tokens_per_second)
        if self.storage_load_tokens_per_second is not None:
            storage = Lane(storage.fixed_s, 1.0 / self.storage_load_tokens_per_second)
        token_s = 1.0 / self.prefill_tokens_per_second if self.prefill_tokens_per_second is not None else start.token_s
        return checked(msgspec.structs.replace(start, token_s=token_s, cpu=cpu, storage=storage))


class TierCostProducer(Producer[TierCostParameters]):
    """Prices each request at every endpoint, in seconds to its first token, and learns the constants from observations.

    If none is declared, one is created for a ``tier-cost-scorer`` or ``tier-cost-picker``.

    Writes: a ``Pricing`` into the scratch space ``scorers.cost.pricing.PRICING``.
    Reads: ``Request.cached`` of all producers, so it comes after them.
    """

    type_name = "tier-cost-producer"
    Parameters = TierCostParameters

    def __init__(self, parameters: TierCostParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.start_with(None)

    def start_with(self, known: Constants | None) -> None:
        """Start a new model from the constants that follow from the model name and the hardware."""
        written = self.parameters
        self.model = CostModel(
            written.constants(known),
            learns=written.learn,
            kind_label=written.kind_label,
            others_weight=written.others_weight,
            follows_reports=written.cpu_load_tokens_per_second is None,
        )

    def produce(self, request: Request, candidates: Sequence[Candidate]) -> None:  # noqa: ARG002
        """Attach the pricing to ``request``; prices are computed when first needed."""
        PRICING.put(request, Pricing(self.model, request))

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Add the work of ``request`` at ``candidate`` to the model."""
        pricing = PRICING.take(request)
        if pricing is not None:
            pricing.send(candidate)

    def observed(self, observation: Observation) -> None:
        """Learn from how long a request took."""
        self.model.observed(observation)

    def details(self, request: Request, candidates: Sequence[Candidate]) -> list[Detail]:
        """Return the estimate for each candidate, by parts."""
        pricing = pricing_of(request, self.model)
        return [detail(pricing, candidate) for candidate in candidates]

    def state(self) -> object:
        """Return the constants in use, and the endpoints that differ from them."""
        return state_of(self.model)


class TierCostScorer(Scorer[NoParameters]):
    """Score the lowest price 1, and higher prices by their ratio to it.

    A price is the time to the first token plus the delay of other requests.

    score[i] = (least + 0.1) / (seconds[i] + 0.1): the order of the seconds, whatever their size; differences far below
    a tenth of a second count for little beside other scorers.

    Reads: ``scorers.cost.pricing.PRICING``.
    """

    type_name = "tier-cost-scorer"

    def __init__(self, parameters: NoParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._unpriced = CostModel(learns=False)

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by its price in seconds."""
        seconds = pricing_of(request, self._unpriced).seconds(candidates)
        least = min(seconds) + SCALE_S
        return [least / (took + SCALE_S) for took in seconds]


def pricing_of(request: Request, otherwise: CostModel) -> Pricing:
    """Return the pricing that the producer attached; if there is none, a pricing by the model ``otherwise``."""
    return PRICING.of(request) or Pricing(otherwise, request)
