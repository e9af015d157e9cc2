"""The plain counters that the hot path writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from epp.decision import Outcome, RequestLabels
from epp.histogram import Histogram
from epp.metrics import tables
from epp.metrics.gauges import ReadingSource
from epp.metrics.series import OTHER, Names, RequestTable
from scorers.base import Candidate, Request, Tier

UNSCHEDULED = frozenset({"ServiceUnavailable", "ResourceExhausted"})
"""Error codes of refusals by the scheduler, not by the parser."""
MAX_ATTEMPT_KEYS = 5_000
"""Maximum number of pairs of model and endpoint with a counter of their own. Beyond it, a pair is counted for its
endpoint with the model ``other``, since clients choose models and operators choose endpoints. A guess."""
MAX_FOLDED_ATTEMPT_KEYS = 10_000
"""Maximum number of pairs including those with the model ``other``; beyond it, as endpoints come and go, the endpoint
is counted as ``other``, too. A guess."""

MAX_ERROR_CODES = 100
"""Maximum number of error codes. The picker and the proxy have some forty."""


class Telemetry:
    """All counters of requests since the start. Each method is O(1) and never raises.

    Owner: the event loop, on which ``Exposition`` reads them, too.
    """

    def __init__(
        self,
        *,
        sample_ratio: float = 1.0,
        producers: Mapping[str, str] | None = None,
        predicted: Callable[[str, int, Mapping[Tier, int]], None] | None = None,
    ) -> None:
        """``sample_ratio`` is the share of responses seen in full; ``producers`` are plugin types by instance name;
        ``predicted`` is called for each pick with its address, the prompt's tokens, and the cached tokens by tier."""
        self._predicted = predicted
        self.sample_ratio = sample_ratio
        self.producers = producers or {}
        self.sources: list[ReadingSource] = []
        self.requests = RequestTable()
        self.codes = Names(MAX_ERROR_CODES)
        self.decision = Histogram(tables.DECISION.bounds)
        self.request_phase = Histogram(tables.REQUEST_PROCESSING.bounds)
        self.response_phase = Histogram(tables.RESPONSE_PROCESSING.bounds)
        self.plugins: dict[tuple[str, str, str], Histogram] = {}
        """The run times of plugins, by extension point, type and name."""
        self.hits: dict[str, tuple[Histogram, Histogram]] = {}
        """The hit ratios and hit bytes, by producer name."""
        self.hit_tokens: dict[Tier, int] = dict.fromkeys(Tier, 0)
        self.attempts: Counter[tuple[str, str, str]] = Counter()
        """The successful decisions, by target model, endpoint name and address."""
        self.failed_attempts: Counter[str] = Counter()
        """The failed decisions, by target model."""

    def gauge_source(self, source: ReadingSource) -> None:
        """Add a source of further metrics."""
        self.sources.append(source)

    def request_received(self, labels: RequestLabels, size_bytes: int) -> None:
        """Count a request whose body was parsed."""
        series = self.requests.received(labels)
        series.requests += 1
        series.size.observe(size_bytes)

    def decided(self, labels: RequestLabels, request: Request, candidate: Candidate, seconds: float) -> None:
        """Count a decision for ``candidate``; hashing, scoring, picking and recording took ``seconds``."""
        self.decision.observe(seconds)
        attempts = self.attempts
        attempt = (self.requests(labels).labels.target_model_name, candidate.name, candidate.address)
        if attempt not in attempts and len(attempts) >= MAX_ATTEMPT_KEYS:
            attempt = (OTHER, candidate.name, candidate.address)
            if attempt not in attempts and len(attempts) >= MAX_FOLDED_ATTEMPT_KEYS:
                attempt = (OTHER, OTHER, "")
        attempts[attempt] += 1
        slot = candidate.slot
        best: dict[Tier, int] = {}
        for producer, cached in request.cached.items():
            tokens = cached.tokens.get(slot, 0)
            hits = self.hits.get(producer)
            if hits is None:
                hits = self.hits[producer] = (Histogram(tables.HIT_RATIO.bounds), Histogram(tables.HIT_BYTES.bounds))
            ratios, sizes = hits
            ratios.observe(tokens / cached.total_tokens if tokens else 0.0)
            sizes.observe(tokens * 4)
            if tokens and tokens > best.get(cached.tier, 0):  # two producers of one tier track the same memory
                best[cached.tier] = tokens
        for tier, tokens in best.items():
            self.hit_tokens[tier] += tokens
        if self._predicted is not None:
            self._predicted(candidate.address, request.prompt_tokens, best)

    def refused(self, labels: RequestLabels, code: str) -> None:
        """Count a request that was refused with ``code``."""
        series = self.requests(labels)
        series.errors[self.codes.bounded(code)] += 1
        if code in UNSCHEDULED:
            self.failed_attempts[series.labels.target_model_name] += 1

    def plugin(self, extension_point: str, plugin_type: str, plugin_name: str) -> Callable[[float], None]:
        """Return what observes the run times of one plugin, in seconds; to be called once per plugin."""
        return self.plugins.setdefault(
            (extension_point, plugin_type, plugin_name), Histogram(tables.PLUGIN.bounds)
        ).observe

    def ended(self, labels: RequestLabels, outcome: Outcome) -> None:
        """Count what was observed of a request that has ended."""
        series = self.requests(labels)
        for code in outcome.errors:
            series.errors[self.codes.bounded(code)] += 1
        if outcome.duration_s is not None:
            series.duration.observe(outcome.duration_s)
        if outcome.response_bytes is not None:
            series.response_size.observe(outcome.response_bytes)
        if outcome.ttft_s is not None:
            series.observe(tables.TTFT, outcome.ttft_s, streaming=outcome.streaming)
        if outcome.gaps is not None:
            series.histogram(tables.ITL).add(outcome.gaps)
        usage = outcome.usage
        if usage is None:
            return
        observe = series.observe
        observe(tables.INPUT_TOKENS, usage.prompt_tokens)
        observe(tables.CACHED_TOKENS, usage.cached_tokens or 0)
        observe(tables.OUTPUT_TOKENS, usage.completion_tokens)
        if usage.completion_tokens > 0 and outcome.duration_s is not None:
            observe(tables.NTPOT, outcome.duration_s / usage.completion_tokens)
            if outcome.streaming and outcome.ttft_s is not None and usage.completion_tokens > 1:
                observe(tables.TPOT, (outcome.duration_s - outcome.ttft_s) / (usage.completion_tokens - 1))

    def request_processing(self, seconds: float) -> None:
        """Observe the time spent on one request's request messages."""
        self.request_phase.observe(seconds)

    def response_processing(self, seconds: float) -> None:
        """Observe the time spent on one request's response messages."""
        self.response_phase.observe(seconds)
