"""The options of ``tierwise demo``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from epp.runtime.options import LogOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """``tierwise demo``: the proxy, the picker and endpoints, and what tier awareness is worth."""

    endpoints: tuple[str, ...] = ()
    """The user's own servers; empty starts simulated ones."""
    quick: bool = False
    """A shorter workload: figures are rougher."""
    json: Path | None = None
    """Where the figures also go as JSON."""
    envoy: Path | None = None
    log: LogOptions = LogOptions(verbosity=0)
