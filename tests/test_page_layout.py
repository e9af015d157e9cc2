"""The pages' layout, and the map of the code: lines and cells that fit, and files and names that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.test_architecture import FLOORS
from tests.test_docs import DOCS, FENCE, ROOT, named

OUTSIDE = frozenset({".venv", ".git", "build", "node_modules"})
EVERY_PAGE = sorted(path for path in ROOT.rglob("*.md") if not OUTSIDE & set(path.relative_to(ROOT).parts))


# The map of the code.

ARCHITECTURE = DOCS / "architecture.md"
PATH = re.compile(r"`((?:epp|scorers|kvengine|tests|benchmarks|manifests|docs|proto)/[\w./-]*)`")
PLACE = re.compile(r"^\| Where .*\? \| `(\S+)` \| `(\w+)` \|$", re.MULTILINE)
NAME_IN = re.compile(r"`(\w+)` in\s+`(\S+\.py)`")


@pytest.mark.parametrize("page", EVERY_PAGE, ids=named)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    if page.name != "CHANGELOG.md":
        paths = PATH.findall(FENCE.sub("", page.read_text()))
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_name_on_the_map_is_in_its_file() -> None:
    text = ARCHITECTURE.read_text()
    found = [*((name, path) for path, name in PLACE.findall(text)), *NAME_IN.findall(text)]
    assert len(found) > 20
    for name, path in found:
        defined = re.search(
            rf"^\s*(?:def {name}\(|class {name}\b|{name}\b.*=)", (ROOT / path).read_text(), re.MULTILINE
        )
        assert defined, f"{path} does not define {name}"


def test_the_picture_of_the_floors_is_the_order_that_imports_are_held_to() -> None:
    picture = ARCHITECTURE.read_text().partition("<!-- floors -->\n```\n")[2].partition("```")[0].partition("──")[0]
    pictured = [set(re.findall(r"\S+/(?!\S)", line)) for line in reversed(picture.splitlines())]
    order = [name for name in FLOORS if name.endswith("/")]
    assert set().union(*pictured) == set(order)
    heights = [[order.index(room) for room in rooms] for rooms in pictured]
    for lower, higher in pairwise(heights):
        assert max(lower) < min(higher), "a room stands on a higher line than one that may import it"


# The layout.

LONGEST_LINE, LONGEST_CELL = 120, 90


def outside_of_code(page: Path) -> Iterator[tuple[int, str]]:
    """The number and the text of each line of ``page`` that is not in a fenced block."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


@pytest.mark.parametrize("page", EVERY_PAGE, ids=named)
def test_no_line_of_a_page_is_long(page: Path) -> None:
    """The rows of a table cannot be wrapped, so their limit is that of their cells."""
    long = [n for n, line in outside_of_code(page) if len(line) > LONGEST_LINE and not line.startswith("|")]
    assert not long, f"{named(page)}: lines of more than {LONGEST_LINE} characters: {long}"


@pytest.mark.parametrize("page", EVERY_PAGE, ids=named)
def test_no_cell_of_a_table_is_long(page: Path) -> None:
    for number, line in outside_of_code(page):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)] if line.startswith("|") else []
        long = [cell for cell in cells if len(cell) > LONGEST_CELL]
        assert not long, f"{named(page)}, line {number}: cells of more than {LONGEST_CELL} characters: {long}"
