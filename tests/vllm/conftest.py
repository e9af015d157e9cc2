"""Fixtures of the tests that run in the environment of ``tests/vllm/environment.py``, not in that of other tests.

Engines are started in processes of their own (``engine.py``): one test cannot leave anything to the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kvengine.long_text import long_text
from tests.vllm.ahead import Ahead
from tests.vllm.apart import Apart
from tests.vllm.engine import ENVIRONMENT
from tests.vllm.model import VOCABULARY, make_model
from tests.vllm.scenarios import Expected
from tests.vllm.tokenizer import make_tokenizer

os.environ.update(ENVIRONMENT)  # before vLLM is imported


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Llama with random weights, and of a tokenizer for servers."""
    folder = make_model(tmp_path_factory.mktemp("model"))
    return make_tokenizer(folder, [long_text(20_000)], VOCABULARY)


@pytest.fixture(scope="session")
def ahead(model: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ahead]:
    """Everything that the modules' ``AHEAD`` names, after the control run, which comes first."""
    modules = dict.fromkeys(getattr(item, "module", None) for item in request.session.items)
    makes = [each for module in modules for each in getattr(module, "AHEAD", {}).items()]
    if any("expected" in getattr(item, "fixturenames", ()) for item in request.session.items):
        makes.insert(0, ("expected", lambda model, _: Apart(model, enable_prefix_caching=True)))
    started = Ahead(model, tmp_path_factory.mktemp("ahead"), makes)
    yield started
    started.end_all()


@pytest.fixture(scope="session", autouse=True)
def begin(ahead: Ahead) -> None:
    """Start everything at the beginning of the session."""


@pytest.fixture(scope="session")
def expected(ahead: Ahead) -> Expected:
    """The tokens of an engine without the connector for every scenario."""
    (found,) = ahead["expected"].results().rounds
    return found
