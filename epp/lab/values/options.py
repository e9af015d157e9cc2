"""The options of ``tierwise values``, as typed values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesOptions:
    """The options of ``tierwise values``."""

    files: tuple[str, ...] = ()
    """In the order in which helm would read them; ``-`` is standard input."""
    typed: tuple[str, ...] = ()
    """What ``--set`` sets, after all files."""
    texts: tuple[str, ...] = ()
    """What ``--set-string`` sets, after ``--set``."""
    chart: str = "inferencepool"
    to: str | None = None
    """The tree to write; None writes the other one than that of the values."""
    check: bool = False
    """Whether the values are checked only, and none written."""
