"""The options of the debug port, and of ``tierwise explain``, which asks it."""

from __future__ import annotations

from dataclasses import dataclass

ANY_SERVED = "served"
"""The value of ``?model=`` of ``/debug/explain`` with which a body is asked about that names no model."""

DEBUG_PORT = 9091
"""The debug port where no other is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugOptions:
    """The port that shows internals: ``epp.explain``."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int | None = None
    """None for ``DEBUG_PORT``, or a free one where that is taken: the picker must start all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """``tierwise explain``: asks a running picker's debug port."""

    url: str = f"http://127.0.0.1:{DEBUG_PORT}"
    body: str | None = None
    """A file with a request's body, ``-`` for standard input; None (and no ``prompt``) shows the endpoints."""
    prompt: str | None = None
    model: str | None = None
    """With ``prompt``: the body is made of them; None for a model that is served there."""
    path: str | None = None
    """Of the request; None for completions, or chat where the body has messages."""
    headers: tuple[tuple[str, str], ...] = ()
    subset: str | None = None
    json: bool = False
    """Print the answer as it comes."""
