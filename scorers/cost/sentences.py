"""An estimate as a sentence with numbers, for people to read."""

from __future__ import annotations

from scorers.base import Candidate, Detail
from scorers.cost.estimate import Estimate
from scorers.cost.pricing import Pricing


def sentence(address: str, prompt_tokens: int, priced: Estimate) -> str:
    """Return the estimate as a sentence.

    For instance ``10.0.0.7:8000: holds 29,952 of 30,256 tokens in CPU memory; first token in 0.30 s: 0.21 s load +
    ...``.
    """
    places = [
        f"{tokens:,} {where}"
        for tokens, where in (
            (priced.gpu_tokens, "on the GPU"),
            (priced.cpu_tokens, "in CPU memory"),
            (priced.storage_tokens, "in storage"),
        )
        if tokens
    ]
    held = f"{places[0].replace(' ', f' of {prompt_tokens:,} tokens ', 1)}" if places else ""
    held = ", ".join([held, *places[1:]]) if places else f"none of {prompt_tokens:,} tokens"
    parts = [
        f"{seconds_of(seconds)} {name}"
        for seconds, name in (
            (priced.queue_s, "queue"),
            (priced.load_s, "load"),
            (priced.prefill_s, "prefill"),
            (priced.decode_s, "for running requests"),
            (priced.fixed_s, "fixed"),
        )
        if seconds >= 0.0005 or name == "prefill"
    ]
    overlap = ""
    if priced.queue_s >= 0.0005 and priced.load_s >= 0.0005:
        overlap = "; queue and load at the same time"
    others = f"; delays others by {seconds_of(priced.others_s)}" if priced.others_s >= 0.0005 else ""
    first = f"first token in {seconds_of(priced.total_s)}"
    return f"{address}: holds {held}; {first}: {' + '.join(parts)}{overlap}{others}"


def seconds_of(seconds: float) -> str:
    """Return the seconds as text, with the digits that matter."""
    return f"{seconds:.3f} s" if seconds < 1.0 else f"{seconds:.2f} s"


def detail(pricing: Pricing, candidate: Candidate) -> Detail:
    """Return the estimate at ``candidate``, in words and numbers."""
    priced = pricing.estimate(candidate)
    numbers = {**priced._asdict(), "price_s": priced.price_s}
    return Detail(sentence(candidate.address, pricing.prompt_tokens, priced), numbers)
