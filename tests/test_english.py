"""Docstrings and pages that a stranger understands: whole sentences, no riddles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

GENERATED = "epp/pb"
TOPS = ("epp", "scorers", "kvengine", "tests", "benchmarks")
ROOMS = sorted(
    {str(path.parent.relative_to(ROOT)) for top in TOPS for path in (ROOT / top).rglob("*.py")} - {GENERATED}
)

RIDDLES = re.compile(
    r"\b(nobody|somebody|anybody|whoever|whomever|to be had|that is none|that are none|so-manieth|told)\b",
    re.IGNORECASE,
)
SHORTEST_WORDS = 4


def docstrings(path: Path) -> Iterator[tuple[int, str, bool]]:
    """The line, the text, and whether it belongs to a module, class or function, of each docstring in ``path``."""
    for node in ast.walk(ast.parse(path.read_text())):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        owns = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for position, statement in enumerate(body):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text, owns and position == 0


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).glob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_the_first_line_of_a_docstring_is_more_than_three_words(room: str) -> None:
    short = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in files(room)
        for line, text, owned in docstrings(path)
        if owned and len(text.strip().split("\n")[0].split()) < SHORTEST_WORDS
    ]
    assert not short


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_have_no_riddles(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {riddle[0]}"
        for path in files(room)
        for line, text, _ in docstrings(path)
        for riddle in RIDDLES.finditer(text)
    ]
    assert not found


# The pages.

OUTSIDE = frozenset({".venv", ".git", "build", "node_modules"})
PAGES = sorted(path for path in ROOT.rglob("*.md") if not OUTSIDE & set(path.relative_to(ROOT).parts))
CODE = re.compile(r"^ *```.*?^ *```$|`[^`]*`|\]\([^)]*\)|<!--.*?-->", re.MULTILINE | re.DOTALL)
SPEECH = re.compile(
    r"\b(nobody|somebody|anybody|everybody|whoever|whomever|who|to be had|that is none|that are none|so-manieth"
    r"|told|tells|said|says|knows|hears|heard|listens|believed|strangers?|neighbours?)\b",
    re.IGNORECASE,
)
"""Riddles, and verbs of speech for data flow. Code, links and what a program prints may have any word."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_no_riddles(page: Path) -> None:
    text = CODE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text())
    found = [
        f"{page.relative_to(ROOT)}:{number}: {word[0]}"
        for number, line in enumerate(text.split("\n"), start=1)
        for word in SPEECH.finditer(line)
    ]
    assert not found
