"""``tierwise size``: prints the report, or the published figures beside ours."""

from __future__ import annotations

import msgspec
from rich.console import Console

from epp.size import tables
from epp.size.endpoint import Said, ask
from epp.size.figure import shown
from epp.size.fleet import fleet_of
from epp.size.options import Output, SizeOptions
from epp.size.published import figures
from epp.size.sizing import size
from epp.size.workload import workload_of

UNLIMITED = 200
"""Columns of an output that is no terminal."""


def run_size(options: SizeOptions) -> int:
    """Run the command; the process's exit status. Raises: ConfigError for what cannot be sized."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = UNLIMITED
    if options.seeds:
        found = figures()
        if options.output is Output.JSON:
            _print_json(found)
        else:
            for part in shown(found):
                console.print(part)
        return 0
    said = ask(options.metrics_url) if options.metrics_url else Said()
    report = size(fleet_of(options, said), workload_of(options.workload, options.endpoints), options)
    if options.output is Output.JSON:
        _print_json(report)
    else:
        for part in tables.of_report(report):
            console.print(part)
    return 0


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())
