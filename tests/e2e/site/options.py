"""Makes options of ``tierwise standalone`` in a test as the command makes them of its flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from epp.standalone.flags import standalone_options
from epp.standalone.options import StandaloneOptions
from epp.tracing.settings import TraceSettings


def options_of(
    endpoint: Sequence[str] = (), *, tracing: TraceSettings | None = None, **given: Any
) -> StandaloneOptions:
    """Return the options with the flags in ``given``, by their names with underscores, and their values as read."""
    flags = {name.replace("_", "-"): value for name, value in given.items() if value is not None}
    made = standalone_options({**flags, "endpoint": (tuple(endpoint),)}, {})
    return replace(made, picker=replace(made.picker, tracing=tracing))
