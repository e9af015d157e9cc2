"""A real ``vllm launch render``, vLLM's HTTP server without an engine, as long as a ``with`` block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.vllm.engine import ENVIRONMENT
from tests.vllm.serving import free_port

PATIENCE_S = 180

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1024,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}
"""The dimensions of a model that is never loaded."""


class Server:
    """A server, and the port where it listens."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process = process
        self._log = log

    def post(self, path: str, body: object) -> tuple[int, Any]:
        """Return the status and the answer of a request."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, None

    def wait(self) -> None:
        """Wait until the server accepts requests."""
        until = time.monotonic() + PATIENCE_S
        while True:
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except OSError:
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.2)


@contextmanager
def rendering(folder: Path, name: str = "m") -> Iterator[Server]:
    """Start a server for the tokenizer in ``folder``, as the model ``name``; ``wait`` waits until it is ready."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "launch", "render", str(folder)]
    options = ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "32768"]
    path = folder / "server.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            [*command, *options], env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield Server(process, port, path)
        finally:
            process.terminate()
            process.wait(30)
