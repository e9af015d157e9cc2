"""Runs ``vllm serve`` in a session of its own as long as a ``with`` block; tests use it by HTTP, and kill it."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.vllm.engine import BLOCK_TOKENS, ENVIRONMENT, PATIENCE_S, Tokens

ROOT = Path(__file__).parents[2]
START_S = 180
UP = "Application startup complete"


class Server:
    """A running server, with token ids in and out."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.lines: list[str] = []
        """The lines of its log so far."""
        self.url = f"http://127.0.0.1:{port}"
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def wait_until_up(self) -> None:
        assert self._up.wait(START_S), self.log()
        assert any(UP in line for line in self.lines), self.log()
        until = time.monotonic() + PATIENCE_S
        while not self._answers():  # the line is logged a moment before the port is open
            assert time.monotonic() < until, self.log()

    def log(self) -> str:
        return "".join(self.lines)

    def hear_all(self) -> str:
        """Return the whole log of a server that has ended."""
        self._reader.join(PATIENCE_S)
        return self.log()

    def generate(self, prompts: Sequence[Tokens], max_tokens: int = 16, *, model: str = "base") -> list[Tokens]:
        """Return greedy tokens, one list for each prompt; all prompts are sent at once."""
        body = {
            "model": model, "prompt": list(prompts), "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True,
        }  # fmt: skip
        answer = json.loads(self._ask("/v1/completions", body))
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        return [choice["token_ids"] for choice in choices]

    def reset(self, *, external: bool) -> None:
        """Empty vLLM's own prefix cache, and ours if ``external``."""
        self._ask(f"/reset_prefix_cache?reset_external={str(external).lower()}", {})

    def settle(self) -> None:
        """Wait until the scheduler has processed all copies, and has published their metrics and events."""
        self.generate([[1] * 5], 2)

    def series(self, name: str, **labels: str) -> float:
        """Return the value of one series of ``/metrics``."""
        found = [
            sample.value
            for family in text_string_to_metric_families(self._ask("/metrics"))
            for sample in family.samples
            if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items())
        ]
        assert len(found) == 1, f"{name} {labels}: {found}"
        return float(found[0])

    def members(self) -> dict[int, str]:
        """Return the processes of its session that have not ended, by name."""
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                begin, _, end = stat.read_text().rpartition(")")
                state, _, _, session = end.split()[:4]
            except OSError:
                continue
            if int(session) == self.process.pid and state != "Z":
                found[int(stat.parent.name)] = begin.partition("(")[2]
        return found

    def wait_until_gone(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while left := self.members():
            assert time.monotonic() < until, f"{left} outlive the server\n{self.log()}"

    def kill(self) -> None:
        """Kill all of its processes at once."""
        if self.members():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, headers={"Content-Type": "application/json"})
        with urlopen(request, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def _answers(self) -> bool:
        try:
            self._ask("/health")
        except URLError as error:
            if isinstance(error.reason, ConnectionRefusedError):
                return False
            raise
        return True

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if UP in line:
                self._up.set()
        self._up.set()


PORTS = iter(random.sample(range(20_000, 28_000, 8), 1000))
"""Below the ports that Linux gives to connections: a server binds its port seconds after it was found free."""


def free_port() -> int:
    """Return a free port that was not returned before; a few ports after it are free, too."""
    for port in PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is left")


@contextmanager
def server(
    model: Path, transfer: dict[str, Any], environment: dict[str, str], *options: str, port: int | None = None
) -> Iterator[Server]:
    """Run a server with the connector, configured by ``environment``; ``transfer`` is added to ``KVTransferConfig``."""
    port = port or free_port()
    config = {
        "kv_connector": "KVEngineConnector", "kv_connector_module_path": "kvengine.connector", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute", **transfer,
    }  # fmt: skip
    command = [
        sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--host", "127.0.0.1",
        "--port", str(port), "--served-model-name", "base", "--dtype", "float32", "--enforce-eager",
        "--block-size", str(BLOCK_TOKENS), "--max-model-len", "4096", "--gpu-memory-utilization", "0.3",
        "--kv-transfer-config", json.dumps(config), *options,
    ]  # fmt: skip
    variables = {**os.environ, **ENVIRONMENT, "VLLM_LOGGING_LEVEL": "INFO", **environment}
    process = subprocess.Popen(
        command, cwd=ROOT, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    started = Server(process, port)
    try:
        started.wait_until_up()
        yield started
    finally:
        started.kill()
