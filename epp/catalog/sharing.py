"""How many GPUs can share a model: depends on its attention heads, and on its KV heads, which may be copied."""

from __future__ import annotations

from epp.catalog.model import Model

MOST_RANKS = 64
"""Maximum number of GPUs of one endpoint that a refusal suggests."""


def shareable(model: Model, ranks: int, setting: str = "--tensor-parallel-size=") -> str | None:
    """Return None if ``ranks`` GPUs can share ``model``, else why not and what to do.

    ``setting`` is written before the number.
    """
    if _shares(model, ranks):
        return None
    fitting = ", ".join(str(n) for n in range(1, MOST_RANKS + 1) if _shares(model, n))
    if model.heads % ranks:
        why = f"does not divide the {model.heads} attention heads of {model.name}"
    else:
        why = f"neither divides the {model.kv_heads} KV heads of {model.name} nor is a multiple of them"
    return f"{setting}{ranks} {why}; choose one of {fitting}"


def _shares(model: Model, ranks: int) -> bool:
    copied = model.latent_dim or not ranks % model.kv_heads
    return not model.heads % ranks and bool(copied or not model.kv_heads % ranks)
