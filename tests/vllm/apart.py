"""An engine in one process of its own, beside everything else: what it says to scenarios, for tests that need no more.

    python -m tests.vllm.apart '{"model": "/folder", "names": ["few"], "options": {...}, ...}'

prints it. Scheduler and worker are in that one process, which starts in half of the time of three.
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
SAID = "said: "


class Said(msgspec.Struct):
    """All that an engine came to."""

    rounds: list[dict[str, list[Tokens]]]
    """Tokens by scenario; the device's cache is empty at the begin of each round."""
    hits: float = 0
    """Tokens from outside of the device."""
    compared: int = 0
    different: int = 0
    """Blocks that came back, and those of them that are not what went."""
    series: dict[str, float] = {}
    log: str = ""


class Apart:
    """Started at once, ended with its ``with`` block; ``said`` waits for it."""

    def __init__(
        self,
        model: Path,
        names: list[str] | None = None,
        *,
        rounds: int = 1,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """``names`` of scenarios, or all of them and a second turn; ``options`` are those of ``engine``."""
        asked = {"model": str(model), "names": names, "rounds": rounds, "options": options}
        variables = {
            **os.environ, **ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "INFO",
            **(environment or {}),
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.vllm.apart", json.dumps(asked)], cwd=ROOT, env=variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._said: Said | None = None

    def said(self) -> Said:
        if self._said is None:
            log, _ = self._process.communicate(timeout=PATIENCE_S)
            assert self._process.returncode == 0, log
            (line,) = (line for line in log.splitlines() if line.startswith(SAID))
            self._said = msgspec.json.decode(line.removeprefix(SAID), type=Said)
            self._said.log = log.replace(line, "")
        return self._said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def main() -> int:
    """One engine, and what it says."""
    import torch

    torch.set_num_threads(1)
    asked = json.loads(sys.argv[1])
    options: dict[str, Any] = asked["options"]
    with engine(Path(asked["model"]), **options) as tested:
        said = ask(tested, asked["names"], asked["rounds"])
        if options.get("offload") is not None:
            said.hits = tested.metric("vllm:external_prefix_cache_hits")
            said.series = {f"{name} {label}".strip(): series(name, **labels) for name, label, labels in SERIES}
            if options.get("probed") and said.hits:
                ((said.compared, said.different),) = tested.ask("kv_bytes")
    print(SAID + msgspec.json.encode(said).decode())
    return 0


SERIES: list[tuple[str, str, dict[str, str]]] = [
    *((f"kvengine:tier_{what}_tokens", "cpu", {"tier": "cpu"}) for what in ("capacity", "resident", "pinned")),
    ("kvengine:tier_pinned_tokens", "gpu", {"tier": "gpu"}),
    ("kvengine:failed_jobs_total", "store", {"direction": "store"}),
    ("kvengine:internal_errors_total", "", {}),
]


def ask(tested: Engine, names: list[str] | None, rounds: int) -> Said:
    said = Said([])
    for number in range(rounds):
        if number:
            tested.settle()
            tested.forget_gpu()
        said.rounds.append(run_all(tested) if names is None else {name: tokens(tested, name) for name in names})
    tested.settle()
    return said


if __name__ == "__main__":
    sys.exit(main())
