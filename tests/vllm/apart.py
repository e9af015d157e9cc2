"""Runs scenarios with an engine in a process of its own, for tests that need only its results.

    python -m tests.vllm.apart '{"model": "/folder", "names": ["few"], "options": {...}, ...}'

prints the results. Scheduler and worker are in that one process, which starts in half of the time of three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.vllm.engine import ENVIRONMENT, Engine, Tokens, engine, series
from tests.vllm.scenarios import run_all, tokens

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
RESULTS = "results: "


class Results(msgspec.Struct):
    """The results of one engine for its scenarios."""

    rounds: list[dict[str, list[Tokens]]]
    """Tokens by scenario; the device's cache is empty at the beginning of each round."""
    hits: float = 0
    """Tokens that came from outside of the device."""
    compared: int = 0
    different: int = 0
    """Blocks that were loaded, and how many of them differ from what was stored."""
    series: dict[str, float] = {}
    log: str = ""


class Apart:
    """An engine that starts at once and ends with its ``with`` block; ``results`` waits for it."""

    def __init__(
        self,
        model: Path,
        names: list[str] | None = None,
        *,
        rounds: int = 1,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """``names``: the scenarios; None for all of them and a second turn. ``options`` are those of ``engine``."""
        order = {"model": str(model), "names": names, "rounds": rounds, "options": options}
        variables = {
            **os.environ, **ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "INFO",
            **(environment or {}),
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.vllm.apart", json.dumps(order)], cwd=ROOT, env=variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._results: Results | None = None

    def results(self) -> Results:
        if self._results is None:
            log, _ = self._process.communicate(timeout=PATIENCE_S)
            assert self._process.returncode == 0, log
            (line,) = (line for line in log.splitlines() if line.startswith(RESULTS))
            self._results = msgspec.json.decode(line.removeprefix(RESULTS), type=Results)
            self._results.log = log.replace(line, "")
        return self._results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def main() -> int:
    """Run one engine, and print its results."""
    import torch

    torch.set_num_threads(1)
    order = json.loads(sys.argv[1])
    options: dict[str, Any] = order["options"]
    with engine(Path(order["model"]), **options) as tested:
        results = ask(tested, order["names"], order["rounds"])
        if options.get("offload") is not None:
            results.hits = tested.metric("vllm:external_prefix_cache_hits")
            results.series = {f"{name} {label}".strip(): series(name, **labels) for name, label, labels in SERIES}
            if options.get("probed") and results.hits:
                ((results.compared, results.different),) = tested.ask("kv_bytes")
    print(RESULTS + msgspec.json.encode(results).decode())
    return 0


SERIES: list[tuple[str, str, dict[str, str]]] = [
    *((f"kvengine:tier_{what}_tokens", "cpu", {"tier": "cpu"}) for what in ("capacity", "resident", "pinned")),
    ("kvengine:tier_pinned_tokens", "gpu", {"tier": "gpu"}),
    ("kvengine:failed_jobs_total", "store", {"direction": "store"}),
    ("kvengine:internal_errors_total", "", {}),
]


def ask(tested: Engine, names: list[str] | None, rounds: int) -> Results:
    results = Results([])
    for number in range(rounds):
        if number:
            tested.settle()
            tested.forget_gpu()
        results.rounds.append(run_all(tested) if names is None else {name: tokens(tested, name) for name in names})
    tested.settle()
    return results


if __name__ == "__main__":
    sys.exit(main())
