"""The results of a run, as numbers and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from epp.lab.demo.counters import Counters
from epp.lab.demo.load import Sample
from epp.lab.stats import mean, percentile


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one arm. Units: seconds, requests and tokens per second; shares of prompt tokens, 0 to 1."""

    name: str
    title: str
    requests: int
    errors: dict[str, int]
    duration_s: float
    mean_ttft_s: float
    p90_ttft_s: float
    mean_e2e_s: float
    requests_per_s: float
    tokens_per_s: float
    """Prompt and answer tokens together, as the published tables count them."""
    gpu_share: float
    cpu_share: float
    miss_share: float


def summarise(name: str, title: str, samples: Sequence[Sample], duration_s: float, counted: Counters) -> Result:
    """Return the result of a run; failed requests count only as requests and errors."""
    good = [sample for sample in samples if not sample.error]
    ttfts = [sample.ttft_s for sample in good if sample.ttft_s is not None]
    return Result(
        name=name,
        title=title,
        requests=len(samples),
        errors=dict(Counter(sample.error for sample in samples if sample.error)),
        duration_s=duration_s,
        mean_ttft_s=mean(ttfts),
        p90_ttft_s=percentile(ttfts, 0.9),
        mean_e2e_s=mean([sample.e2e_s for sample in good]),
        requests_per_s=len(good) / duration_s,
        tokens_per_s=sum(sample.prompt_tokens + sample.output_tokens for sample in good) / duration_s,
        gpu_share=counted.gpu_share,
        cpu_share=counted.cpu_share,
        miss_share=counted.miss_share,
    )
