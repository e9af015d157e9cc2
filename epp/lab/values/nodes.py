"""What a chart's values may be, as a tree of nodes: the schema and ``tierwise values`` are made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value of one of the JSON ``types``, which a rule may limit further; null stands for none."""

    types: tuple[str, ...]
    choices: tuple[object, ...] = ()
    """The values that are allowed; empty allows all of the types."""
    pattern: str = ""
    """A regular expression that a text has to match as a whole."""
    example: str = ""
    """A text that matches the pattern, for errors."""
    minimum: float | None = None
    maximum: float | None = None
    refusal: str = ""
    """Why another value than the choices is refused, if the choices do not explain themselves."""


@dataclass(frozen=True, slots=True)
class Section:
    """A map with exactly these keys; null stands for an empty one."""

    keys: Mapping[str, Node]
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """A list, each item of one kind; null stands for an empty one."""

    item: Node
    unique: bool = False
    """Whether no item may be there twice."""


@dataclass(frozen=True, slots=True)
class Free:
    """A map whose keys belong to someone else, such as labels; null stands for an empty one."""

    value: Node | None = None
    """The kind of each value; None allows anything."""


@dataclass(frozen=True, slots=True)
class Either:
    """A value of one of several kinds, such as a word or a list of words."""

    kinds: tuple[Node, ...]


Node = Leaf | Section | Listing | Free | Either


@dataclass(frozen=True, slots=True)
class Chart:
    """The values of one chart: its keys, and which top-level keys exclude each other."""

    name: str
    root: Section
    clashes: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = field(default=())
    """Pairs of groups: a key of the first group excludes the keys of the second."""


def paths(section: Section, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield every key below ``section`` with its path; the items of lists are left out."""
    for key, node in section.keys.items():
        here = (*above, key)
        yield here, node
        if isinstance(node, Section):
            yield from paths(node, here)


TEXT = Leaf(("string",))
WORD = Leaf(("string",), pattern=r"\S+", example="a-name")
BOOLEAN = Leaf(("boolean",))
COUNT = Leaf(("integer",), minimum=0)
PORT = Leaf(("integer",), minimum=1, maximum=65535)
PORT_OR_NAME = Leaf(("integer", "string"), minimum=1, maximum=65535)
SCALAR = Leaf(("string", "number", "boolean"))
NUMBER_OR_TEXT = Leaf(("number", "string"), pattern=r"[0-9.]+([eE]-?[0-9]+)?", example="0.1")
DURATION = Leaf(("string",), pattern=r"([0-9]{1,5}(h|ms|m|s)){1,4}", example="300s")
QUANTITY = Leaf(("number", "string"), pattern=r"[0-9.]+([eE][0-9]+|[numkMGTPE]|[KMGTPE]i)?", example="16Gi")
INT_OR_PERCENT = Leaf(("integer", "string"), pattern=r"[0-9]+%?", example="50%", minimum=0)
ANYTHING = Free()
OBJECTS = Listing(ANYTHING)
WORDS = Listing(TEXT)
LABELS = Free(TEXT)


def choice(*values: object) -> Leaf:
    """Return a leaf that is one of these texts."""
    return Leaf(("string",), choices=values)
