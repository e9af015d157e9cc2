"""How many requests does the simulator serve in a second of CPU time?

``high-cache`` by two policies on fleets of three sizes, each run in a separate process, one core. With ``--beside``
the same runs alternate with those of another checkout; printed are the ratio, and whether both have the same figures.

Run: ``python -m benchmarks.simulator.simulator_speed [--beside CHECKOUT] [--rounds N]``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

POLICIES = ("tiered", "cost")
REQUESTS = {8: 1800, 64: 3600, 1000: 6000}
"""Requests of a run by the number of endpoints; 5 or 6 are in progress at a time for each endpoint."""
HERE = Path(__file__).resolve().parents[2]


class Row(NamedTuple):
    """The result of one run."""

    requests_per_s: float
    """Requests per second of CPU time, without the time to import the modules."""
    figures: dict[str, object]
    """The simulated figures of the run."""


def simulate(policy: str, endpoints: int) -> None:
    """Simulate one run in this process and print its row."""
    import msgspec

    from epp.lab.fleet import engines, policies
    from epp.lab.fleet.fleet import FleetSettings
    from epp.lab.fleet.loads import load_for
    from epp.lab.fleet.trial import Trial, run

    config = load_for("high-cache", endpoints).config
    stage = msgspec.structs.replace(config.load.stages[0], num_requests=REQUESTS[endpoints])
    config = msgspec.structs.replace(config, load=msgspec.structs.replace(config.load, stages=(stage,)))
    trial = Trial(
        policy=policies.choose(policy), workload="high-cache", config=config, engine=engines.choose(engines.DEFAULT),
        endpoints=endpoints, seed=1, settings=FleetSettings(),
    )  # fmt: skip
    began = time.process_time()
    whole = run(trial).whole
    print(json.dumps([whole.requests / (time.process_time() - began), msgspec.to_builtins(whole)]))


def row_of(checkout: Path, policy: str, endpoints: int) -> Row:
    """Return the row of one run by the code of ``checkout``."""
    words = [sys.executable, str(Path(__file__).resolve()), "--one", policy, str(endpoints)]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(checkout)}, cwd=checkout, check=True, capture_output=True, text=True
    )
    return Row(*json.loads(done.stdout))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        simulate(args.one[0], int(args.one[1]))
        return
    checkouts = [HERE] if args.beside is None else [args.beside.resolve(), HERE]
    where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"high-cache, requests for a second of CPU time, median of {args.rounds}; {where}")
    names = ["requests/s"] if len(checkouts) == 1 else ["before", "after", "ratio", "figures"]
    print(f"{'endpoints':>9} {'requests':>9}  {'policy':<8}" + "".join(f"{name:>12}" for name in names))
    for endpoints, requests in REQUESTS.items():
        for policy in POLICIES:
            rounds = [[row_of(checkout, policy, endpoints) for checkout in checkouts] for _ in range(args.rounds)]
            rates = [statistics.median(rows[n].requests_per_s for rows in rounds) for n in range(len(checkouts))]
            line = f"{endpoints:>9,} {requests:>9,}  {policy:<8}" + "".join(f"{rate:>12,.0f}" for rate in rates)
            if len(rates) > 1:
                same = all(before.figures.items() <= after.figures.items() for before, after in rounds)
                line += f"{rates[1] / rates[0]:>12.2f}{'the same' if same else 'differ':>12}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
