"""Run every benchmark, one after the other, and keep each table in ``benchmarks/results/``.

Run: ``make bench``, or ``python -m benchmarks.all [FOLDER.NAME ...]``, on a machine that nothing else uses.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAMES = (
    "picker.cpu_per_request", "picker.decision", "picker.priced_decision", "index.prefix_time", "index.prefix_memory",
    "picker.idle_scrape", "picker.body_shapes", "picker.waiting", "index.kv_events",
)  # fmt: skip
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Run them and return the exit status: 1 if one of them failed."""
    RESULTS.mkdir(exist_ok=True)
    failed = 0
    for name in sys.argv[1:] or NAMES:
        print(f"== {name}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}"], stdout=subprocess.PIPE, text=True, check=False
        )
        print(done.stdout, flush=True)
        if done.returncode:
            failed = 1
        else:
            (RESULTS / f"{name.rpartition('.')[2]}.txt").write_text(done.stdout)
    return failed


if __name__ == "__main__":
    sys.exit(main())
