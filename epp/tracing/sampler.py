"""Decides which requests are traced, from the caller's context and the trace's id alone."""

from __future__ import annotations

from dataclasses import dataclass

from epp.tracing.context import TraceContext

_ID_SPACE = 1 << 64


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples a share of the traces.

    With ``by_parent``, the caller's decision counts if there is one, else the share ``ratio``; without it, always
    ``ratio``. Source: OpenTelemetry's samplers. The lower half of the trace id decides, as in its Python library, so
    that services with the same ratio choose the same traces.
    """

    ratio: float = 0.1
    by_parent: bool = True

    def samples(self, trace_id: int, parent: TraceContext | None) -> bool:
        """Return whether the trace is to be written."""
        if parent is not None and self.by_parent:
            return parent.sampled
        return trace_id % _ID_SPACE < round(self.ratio * _ID_SPACE)


def sampler_named(name: str, argument: str) -> Sampler:
    """Return the sampler for ``OTEL_TRACES_SAMPLER`` and ``OTEL_TRACES_SAMPLER_ARG``; empty values mean the defaults.

    Raises: ValueError that lists the allowed values.
    """
    name = name or "parentbased_traceidratio"
    by_parent, plain = name.startswith("parentbased_"), name.removeprefix("parentbased_")
    fixed = {"always_on": 1.0, "always_off": 0.0}
    if plain in fixed:
        return Sampler(fixed[plain], by_parent)
    if plain != "traceidratio":
        raise ValueError(
            f"OTEL_TRACES_SAMPLER={name}: must be always_on, always_off or traceidratio, alone or after parentbased_"
        )
    try:
        ratio = float(argument) if argument else Sampler().ratio
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG={argument}: must be a number from 0 to 1")
    return Sampler(ratio, by_parent)
