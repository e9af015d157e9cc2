"""The command ``tierwise size``: prints what fits into each tier, and what follows from that."""

from __future__ import annotations

import msgspec

from epp.lab.size import tables
from epp.lab.size.endpoint import ReportedFacts, read_endpoint
from epp.lab.size.fleet import fleet_of
from epp.lab.size.options import Output, SizeOptions
from epp.lab.size.sizing import size
from epp.lab.size.workload import workload_of
from epp.printing.prose import console_for, show


def run_size(options: SizeOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError for what cannot be sized."""
    reported = read_endpoint(options.metrics_url) if options.metrics_url else ReportedFacts()
    report = size(fleet_of(options, reported), workload_of(options.workload, options.endpoints), options)
    if options.output is Output.JSON:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        show(console_for(), tables.of_report(report))
    return 0
