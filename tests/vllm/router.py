"""Runs ``tierwise standalone`` with a real Envoy from its own environment, as long as a ``with`` block."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.vllm.engine import PATIENCE_S
from tests.vllm.serving import ROOT, free_port

WELCOME = "OpenAI requests are welcome"


def tierwise() -> str:
    """Return the command that ``make test`` names; skip the test if there is none."""
    named = os.environ.get("TIERWISE") or str(ROOT / ".venv" / "bin" / "tierwise")
    command = shutil.which(named)
    if command is None:
        pytest.skip(f"{named} is no command: install tierwise[standalone,precise], and name it in TIERWISE")
    return command


class Router:
    """A running router: where clients connect, and the picker's metrics."""

    def __init__(self, process: subprocess.Popen[str], port: int, metrics_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._metrics_port = metrics_port
        self._process = process
        self._lines: list[str] = []
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def wait_until_up(self) -> None:
        assert self._up.wait(PATIENCE_S), self.log()
        assert any(WELCOME in line for line in self._lines), self.log()

    def log(self) -> str:
        return "".join(self._lines)

    def series(self, name: str, **labels: str) -> list[float]:
        """Return the values of the picker's series that have these labels."""
        with urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=PATIENCE_S) as page:
            families = list(text_string_to_metric_families(page.read().decode()))
        return [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items())
        ]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            if WELCOME in line:
                self._up.set()
        self._up.set()


@contextmanager
def router(config: Path, endpoints: Sequence[str], *options: str) -> Iterator[Router]:
    """Run a router to ``endpoints`` with the configuration ``config``."""
    port, metrics_port = free_port(), free_port()
    command = [
        tierwise(), "standalone", "--config-file", str(config), "--endpoint", ",".join(endpoints),
        "--host", "127.0.0.1", "--port", str(port), "--metrics-port", str(metrics_port),
        "--admin-port", str(free_port()), "--debug-port", str(free_port()), "--drain-timeout", "5s", *options,
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    started = Router(process, port, metrics_port)
    try:
        started.wait_until_up()
        yield started
    finally:
        started.stop()
