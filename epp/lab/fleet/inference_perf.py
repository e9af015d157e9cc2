"""A run in the format of inference-perf's ``summary_lifecycle_metrics.json``, so that its tools read ours.

Source: the format of inference-perf 0.7. What a simulation does not have (bytes, goodput) is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from epp.lab.fleet.record import Record
from epp.lab.fleet.stages import StagePlan
from epp.lab.stats import mean, percentile

_PERCENTILES = (0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)
Distribution = dict[str, float] | None


def lifecycle(records: Sequence[Record], plan: StagePlan | None = None) -> dict[str, object]:
    """Return one stage, or all of them where ``plan`` is None. Units: seconds, tokens."""
    good = [record for record in records if not record.refused]
    began, ended = min(r.arrived_at for r in records), max(r.ended_at for r in records)
    sent_s = max(r.arrived_at for r in records) - began
    seconds = ended - began
    load: dict[str, object] = {
        "count": len(records),
        "schedule_delay": distribution([0.0] * len(records)),
        "send_duration": sent_s,
        "achieved_rate": len(records) / sent_s if sent_s else None,
    }
    if plan is not None:
        load |= {"requested_rate": plan.rate, "concurrency": plan.concurrency}
    prompts, answers = [r.ask.prompt_tokens for r in good], [r.ask.output_tokens for r in good]
    gaps = [(r.ended_at - r.first_at) / (r.ask.output_tokens - 1) for r in good if r.ask.output_tokens > 1]
    cached = sum(r.hits.gpu + r.hits.cpu for r in good)

    def rate(count: int) -> float | None:
        return count / seconds if seconds else None  # no request was served

    return {
        "benchmark_time_seconds": seconds,
        "load_summary": load,
        "successes": {
            "count": len(good),
            "latency": {
                "request_latency": distribution([r.ended_at - r.arrived_at for r in good]),
                "normalized_time_per_output_token": distribution(
                    [(r.ended_at - r.arrived_at) / r.ask.output_tokens for r in good]
                ),
                "time_per_output_token": distribution(gaps),
                "time_to_first_token": distribution([r.first_at - r.arrived_at for r in good]),
                "inter_token_latency": distribution(gaps),
            },
            "throughput": {
                "input_tokens_per_sec": rate(sum(prompts)),
                "output_tokens_per_sec": rate(sum(answers)),
                "total_tokens_per_sec": rate(sum(prompts) + sum(answers)),
                "requests_per_sec": rate(len(good)),
            },
            "prompt_tokens": {
                "total": sum(prompts),
                "cached": cached,
                "uncached": sum(prompts) - cached,
                **(distribution(prompts) or {}),
            },
            "output_tokens": {"total": sum(answers), **(distribution(answers) or {})},
        },
        "failures": {
            "count": len(records) - len(good),
            "request_latency": distribution([r.ended_at - r.arrived_at for r in records if r.refused]),
            "prompt_tokens": distribution([r.ask.prompt_tokens for r in records if r.refused]),
        },
    }


def distribution(values: Sequence[float]) -> Distribution:
    """Return mean, extremes and percentiles; None for no values, as inference-perf does."""
    if not values:
        return None
    named = {"median" if p == 50 else f"p{p:g}": percentile(values, p / 100) for p in _PERCENTILES}
    return {"mean": mean(values), "min": min(values), "max": max(values), **named}
