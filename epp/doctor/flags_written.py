"""The flags of a container as they are written, of any program and any release: no table of flags is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TRUE = ("true", "1", "t", "T", "TRUE", "True")
"""How Go's flag package writes true."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a command line says."""

    values: Mapping[str, tuple[str, ...]]
    """By the flag's name without dashes; ``true`` for a flag without a value."""
    split_booleans: tuple[str, ...] = ()
    """Flags that are followed by a word of their own which is true or false: Go reads that word as an argument."""

    def value(self, name: str) -> str | None:
        """Return the last value of a flag; None if it is not written."""
        values = self.values.get(name)
        return values[-1] if values else None

    def is_on(self, name: str, otherwise: bool) -> bool:
        """Return whether a boolean flag is on; ``otherwise`` if it is not written."""
        value = self.value(name)
        return otherwise if value is None else value in TRUE


def written(words: Iterable[str]) -> Written:
    """Return the flags in ``words``, which may be written ``--flag=value``, ``--flag value`` or ``--flag``."""
    values: dict[str, list[str]] = {}
    split: list[str] = []
    before = ""
    for word in words:
        if word.startswith("-") and len(word.strip("-")) > 1:
            name, equals, value = word.lstrip("-").partition("=")
            values.setdefault(name, []).append(value if equals else "true")
            before = "" if equals else name
        elif before:
            if word in ("true", "false"):
                split.append(before)  # and the flag stays true
            else:
                values[before][-1] = word
            before = ""
    return Written({name: tuple(some) for name, some in values.items()}, tuple(split))
