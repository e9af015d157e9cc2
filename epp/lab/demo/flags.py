"""The flags of ``tierwise demo``."""

from __future__ import annotations

from dataclasses import replace

from epp.flags import values
from epp.flags.arguments import Given, with_fields
from epp.flags.common import ENDPOINTS, VERBOSITY, endpoints_of
from epp.flags.flag import Flag, grouped
from epp.lab.demo.options import DemoOptions

DEMO: tuple[Flag, ...] = grouped(
    "Flags",
    ENDPOINTS,
    Flag("quick", values.boolean, "quick", "a shorter workload, rougher figures"),
    Flag("json", values.path, "json", "write the figures there too, as JSON", "FILE"),
    Flag("envoy", values.path, "envoy", "Envoy to run", "FILE"),
    replace(VERBOSITY, help="0 errors, 2 what an operator wants, 4 debugging (default 0)"),
)


def demo_options(given: Given) -> DemoOptions:
    """The options of ``tierwise demo``."""
    return with_fields(DemoOptions(endpoints=endpoints_of(given)), given, DEMO)
