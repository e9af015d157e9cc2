"""Fixtures of tokenizers that are trained once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.epp.tokens.trained import KINDS


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tokenizer, by its kind."""
    made: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in made:
            made[kind] = KINDS[kind](tmp_path_factory.mktemp(kind))
        return made[kind]

    return of
