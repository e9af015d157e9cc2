"""Runs in the environment that ``tests/vllm/environment.py`` makes, not in that of the other tests.

Engines are started in processes of their own (``engine.py``): one test cannot leave anything to the next.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.long_text import long_text
from tests.vllm.engine import ENVIRONMENT, engine
from tests.vllm.model import VOCABULARY, make_model
from tests.vllm.scenarios import Expected, run_all
from tests.vllm.tokenizer import make_tokenizer

os.environ.update(ENVIRONMENT)  # before vLLM is imported


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with random weights, and a tokenizer for servers."""
    folder = make_model(tmp_path_factory.mktemp("model"))
    return make_tokenizer(folder, [long_text(20_000)], VOCABULARY)


@pytest.fixture(scope="session")
def expected(model: Path) -> Expected:
    """What an engine without the connector says to every scenario."""
    with engine(model, enable_prefix_caching=True) as plain:
        return run_all(plain)
