"""The options of ``tierwise print``."""

from __future__ import annotations

from dataclasses import dataclass

from epp.flags.arguments import Given


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintOptions:
    """``tierwise print``: writes a file that comes with the distribution to standard output."""

    name: str | None = None
    """None for the list of names."""


def print_options(given: Given) -> PrintOptions:
    """The options of ``tierwise print``."""
    return PrintOptions(name=given.get("name"))
