"""The flags of ``tierwise demo``."""

from __future__ import annotations

from dataclasses import replace

from epp.flags import values
from epp.flags.flag import ENDPOINTS, VERBOSITY, Flag, grouped

DEMO: tuple[Flag, ...] = grouped(
    "Flags",
    ENDPOINTS,
    Flag("quick", values.boolean, "quick", "a shorter workload, rougher figures"),
    Flag("json", values.path, "json", "write the figures there too, as JSON", "FILE"),
    Flag("envoy", values.path, "envoy", "Envoy to run", "FILE"),
    replace(VERBOSITY, help="0 errors, 2 what an operator wants, 4 debugging (default 0)"),
)
