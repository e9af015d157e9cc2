"""The results of a stage, in the columns of the published tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from epp.lab.fleet.record import Record
from epp.lab.stats import mean, percentile

STUDENT_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Two-sided 95 % quantiles, by degrees of freedom from 1; beyond the table, 2 is used."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one or several stages. Units: seconds, tokens per second; shares of prompt tokens, 0 to 1."""

    requests: int
    refused: int
    """Requests refused by the engines, as too long, or by the picker; no other figure includes them."""
    refusal: str = ""
    """Who refused the first of them, and why; empty if there is none."""
    duration_s: float
    """From the first arrival to the end of the last answer."""
    mean_ttft_s: float
    p90_ttft_s: float
    mean_e2e_s: float
    p90_e2e_s: float
    itl_s: float
    """The mean time between two tokens of an answer."""
    tokens_per_s: float
    """Prompt and answer tokens together, as the published tables count them."""
    input_tokens_per_s: float
    output_tokens_per_s: float
    gpu_share: float
    cpu_share: float
    prediction_error: float
    """|predicted - actual| cached tokens, as a share of the prompt tokens, of requests that a picker saw."""


class Interval(msgspec.Struct, frozen=True):
    """A mean over runs and its 95 % margin of error, by Student's t. The margin is NaN for one run."""

    mean: float
    margin: float


def figures_of(records: Sequence[Record]) -> Figures:
    """Return the figures of ``records``. Means are NaN where no request was served."""
    good = [record for record in records if not record.refused]
    prompt = sum(record.ask.prompt_tokens for record in good)
    output = sum(record.ask.output_tokens for record in good)
    duration_s = max(r.ended_at for r in good) - min(r.arrived_at for r in good) if good else math.nan
    ttfts = [r.first_at - r.arrived_at for r in good]
    e2es = [r.ended_at - r.arrived_at for r in good]
    gaps = [(r.ended_at - r.first_at) / (r.ask.output_tokens - 1) for r in good if r.ask.output_tokens > 1]
    gpu, cpu = sum(r.hits.gpu for r in good), sum(r.hits.cpu for r in good)
    wrong, judged = 0, 0
    for r in good:
        if r.predicted_tokens is not None:
            wrong += abs(r.predicted_tokens - r.hits.gpu - r.hits.cpu)
            judged += r.ask.prompt_tokens
    return Figures(
        requests=len(records),
        refused=len(records) - len(good),
        refusal=next((record.refused for record in records if record.refused), ""),
        duration_s=duration_s,
        mean_ttft_s=mean(ttfts),
        p90_ttft_s=percentile(ttfts, 0.9),
        mean_e2e_s=mean(e2es),
        p90_e2e_s=percentile(e2es, 0.9),
        itl_s=mean(gaps),
        tokens_per_s=(prompt + output) / duration_s,
        input_tokens_per_s=prompt / duration_s,
        output_tokens_per_s=output / duration_s,
        gpu_share=gpu / prompt if prompt else math.nan,
        cpu_share=cpu / prompt if prompt else math.nan,
        prediction_error=wrong / judged if judged else math.nan,
    )


def interval(values: Sequence[float]) -> Interval:
    """Return the mean and its margin over independent runs."""
    middle, count = mean(values), len(values)
    if count < 2:
        return Interval(middle, math.nan)
    variance = math.fsum((value - middle) ** 2 for value in values) / (count - 1)
    t = STUDENT_T[count - 2] if count - 2 < len(STUDENT_T) else 2.0
    return Interval(middle, t * math.sqrt(variance / count))


def changes(those: Sequence[Figures], base: Sequence[Figures], of: Callable[[Figures], float]) -> Interval:
    """Return the change of ``of`` against ``base``, as a share of base; runs of equal seeds are compared."""
    return interval([of(figures) / of(other) - 1.0 for figures, other in zip(those, base, strict=True)])
