"""Estimate how long each endpoint would take for a request, and learn from how long requests took."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scorers.base import Candidate, Observation
from scorers.cost.constants import Constants
from scorers.cost.endpoint_costs import EndpointCosts, Kind
from scorers.cost.estimate import Estimate
from scorers.cost.learning import Sample
from scorers.cost.queues import MOST_AHEAD_S

PUBLISHED_EVERY = 8
"""New constants come into use after this many observations: until then, what was computed for a candidate
stays valid."""
OPEN = 8192
"""Number of picks whose estimate is kept until they are observed. A guess: more than a picker has in flight; in lean
mode most picks are never observed."""
MOST_KINDS = 64
"""The most kinds. Each value of the label makes a kind, and label values must not fill the memory."""
COUNTED = 1000
"""After this many picks, the counts of picks and answers are halved, so that older ones weigh less."""


class Sent(NamedTuple):
    """What was expected of a request at its pick."""

    candidate: Candidate
    """The candidate, kept so that its identity is not reused for another one."""
    estimate: Estimate
    lane_s: float
    """Loads that were ahead on the request's lane."""
    full: bool
    """Whether the request had to wait for memory."""
    unstreamed_tokens: int
    """For a response that is not streamed, the tokens that the request computes; else 0."""


class CostModel:
    """The endpoints with their learned constants and the work under way. Owner: the event loop.

    Invariant: the size is bounded by the number of endpoints and by ``OPEN``; nothing that a client sent is kept.
    """

    def __init__(
        self,
        start: Constants | None = None,
        *,
        learns: bool = True,
        kind_label: str = "",
        others_weight: float = 1.0,
        follows_reports: bool = True,
    ) -> None:
        """Create a model without endpoints.

        ``follows_reports`` is whether load times that engines report take precedence over ``start``.
        """
        self.start = start or Constants()
        self.learns = learns
        self.now = 0.0
        """The time of the latest arrival."""
        self.answers_seen = False
        """Whether the picker usually sees responses begin: only then does an unseen one count as late."""
        self.version = 0
        """Version of the constants in use; it counts up."""
        self._learned = 0
        self._follows_reports = learns and follows_reports
        self._kind_label = kind_label
        self._others_weight = others_weight
        self._kinds: dict[str, Kind] = {}
        self._costs: list[EndpointCosts | None] = []  # by slot
        self._sent: OrderedDict[int, Sent] = OrderedDict()  # by the identity of the candidate
        self._mean_prefill_s = 0.0
        self._picks = self._answers = 0

    def arrived(self, now: float) -> None:
        """Note that a request arrived at ``now``; a request that waited for its pick arrived before others."""
        if now > self.now or now < self.now - MOST_AHEAD_S:
            self.now = now

    def sent(
        self, candidate: Candidate, priced: Estimate, lane_s: float, *, full: bool, unstreamed_tokens: int = 0
    ) -> None:
        """Note that a request goes to ``candidate``, and that ``priced`` is expected of it."""
        costs = self.costs(candidate)
        costs.unstreamed_tokens += unstreamed_tokens
        if self.learns or unstreamed_tokens:
            self._sent[id(candidate)] = Sent(candidate, priced, lane_s, full, unstreamed_tokens)
            if len(self._sent) > OPEN:
                self._sent.popitem(last=False)
        costs.queues.sent(priced, costs.constants, self.now)
        costs.candidate = None
        self._mean_prefill_s += 0.05 * (priced.prefill_s - self._mean_prefill_s)
        self._picks += 1
        if self._picks >= COUNTED:
            self._picks, self._answers = self._picks // 2, self._answers // 2

    def observed(self, observation: Observation) -> None:
        """Learn from how long a request took."""
        candidate = observation.prediction.candidate
        sent = self._sent.pop(id(candidate), None)
        if observation.ttft_s is not None:
            self._answers += 1
        self.answers_seen = self._answers * 2 >= self._picks
        if sent is None or sent.candidate is not candidate:
            return
        costs = self._costs[candidate.slot]
        if costs is None or costs.address != candidate.address:
            return  # another endpoint has its slot by now
        sample = sample_of(observation, sent) if self.learns else None
        costs.unstreamed_tokens = max(0, costs.unstreamed_tokens - sent.unstreamed_tokens)
        costs.candidate = None
        if sample is None:
            return
        comparison = costs.kind.learner.observe(sample)
        self._learned += 1
        if self._learned % PUBLISHED_EVERY == 0:
            for kind in self._kinds.values():
                kind.publish()
            self.version += 1
        other = self._costs[self._learned % len(self._costs)]  # one at a time: there may be thousands
        if other is not None and other.differs:
            other.retry(self.now, self._learned, len(self._costs))
        if comparison is not None:
            costs.observed_s, costs.observed_count = self.now, self._learned
            ratio, loading = comparison
            (costs.loading if loading else costs.computing).observe(ratio)

    def costs(self, candidate: Candidate) -> EndpointCosts:
        """Return what is known of an endpoint; a slot that another endpoint has now begins anew."""
        slot, table = candidate.slot, self._costs
        if slot >= len(table):
            table.extend([None] * (slot + 1 - len(table)))
        costs = table[slot]
        if costs is None or costs.address != candidate.address:
            costs = table[slot] = EndpointCosts(candidate.address, self._kind_of(candidate))
        return costs

    def current(self, candidate: Candidate) -> EndpointCosts:
        """Return what is known of an endpoint, up to date with ``candidate``."""
        costs = self.costs(candidate)
        if costs.candidate is not candidate or costs.version != self.version:
            kind, reports = costs.kind, candidate.tiers
            if self._follows_reports and reports and not kind.has_load_time and kind.start_from_report(candidate):
                self.version += 1
            costs.follow(candidate, self.version, self._mean_prefill_s, self._others_weight)
        return costs

    def all_costs(self, candidates: Sequence[Candidate]) -> Sequence[EndpointCosts | None]:
        """Return the costs by slot, enough for the largest slot of ``candidates``; not all are up to date."""
        last = max([candidate.slot for candidate in candidates], default=-1)
        if last >= len(self._costs):
            self._costs.extend([None] * (last + 1 - len(self._costs)))
        return self._costs

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Kinds by the value of the label that distinguishes them."""
        return self._kinds

    def endpoints(self) -> Iterator[EndpointCosts]:
        """Yield the costs of every endpoint that was ever priced and whose slot was not reused."""
        return (costs for costs in self._costs if costs is not None)

    def _kind_of(self, candidate: Candidate) -> Kind:
        name = candidate.labels.get(self._kind_label, "") if self._kind_label else ""
        if name not in self._kinds and len(self._kinds) >= MOST_KINDS:
            name = ""
        if name not in self._kinds:
            self._kinds[name] = Kind(self._usual)
        return self._kinds[name]

    @property
    def _usual(self) -> Constants:
        """The constants with which a new kind begins: those of the kind with the most observations.

        A guess that is worse than what was observed of other kinds would keep all requests away from the new kind.
        """
        best = max(self._kinds.values(), key=lambda kind: kind.learner.used, default=None)
        return self.start if best is None or not best.learner.used else best.constants


def sample_of(observation: Observation, sent: Sent) -> Sample | None:
    """Return what can be learned from a request; None if its time does not show what its work took.

    What the engine reports as found and loaded takes precedence over what was expected.
    """
    ttft_s = observation.ttft_s
    if ttft_s is None or not observation.streaming or observation.status not in (None, 200) or sent.full:
        return None
    priced = sent.estimate
    prompt = observation.prediction.prompt_tokens
    gpu, cpu, storage = priced.gpu_tokens, priced.cpu_tokens, priced.storage_tokens
    if observation.cached_tokens is not None and observation.prompt_tokens:
        # Shares, since a prompt's tokens may be an estimate. Without a report by tier, the fastest tier comes first.
        found = min(prompt - 1, round(observation.cached_tokens / observation.prompt_tokens * prompt))
        reported = observation.cached_by_tier
        if reported and (total := sum(reported.values())) > 0:
            by_tier = {tier.value: round(found * tokens / total) for tier, tokens in reported.items()}
            gpu, cpu = by_tier.get("gpu", 0), by_tier.get("cpu", 0)
            storage = max(0, found - gpu - cpu)
        else:
            gpu = min(found, gpu) if cpu + storage else found
            cpu = min(found - gpu, cpu) if storage else found - gpu
            storage = found - gpu - cpu
    duration_s = observation.duration_s
    return Sample(
        ttft_s, prompt, gpu, cpu, storage, priced.queue_s, sent.lane_s, observation.prediction.candidate.running,
        None if duration_s is None else duration_s - ttft_s,
    )  # fmt: skip
