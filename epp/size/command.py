"""``tierwise size``: prints the report, or the published figures beside ours."""

from __future__ import annotations

import msgspec

from epp.printing.prose import console_for, show
from epp.size import tables
from epp.size.endpoint import Said, ask
from epp.size.figure import shown
from epp.size.fleet import fleet_of
from epp.size.options import Output, SizeOptions
from epp.size.published import figures
from epp.size.sizing import size
from epp.size.workload import workload_of


def run_size(options: SizeOptions) -> int:
    """Run the command; the process's exit status. Raises: ConfigError for what cannot be sized."""
    if options.seeds:
        found = figures()
        if options.output is Output.JSON:
            _print_json(found)
        else:
            show(console_for(), shown(found))
        return 0
    said = ask(options.metrics_url) if options.metrics_url else Said()
    report = size(fleet_of(options, said), workload_of(options.workload, options.endpoints), options)
    if options.output is Output.JSON:
        _print_json(report)
    else:
        show(console_for(), tables.of_report(report))
    return 0


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())
