"""The typed options of ``tierwise print``."""

from __future__ import annotations

from dataclasses import dataclass

from epp.flags.arguments import Given


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintOptions:
    """The options of ``tierwise print``, which prints a file of the distribution."""

    name: str | None = None
    """None prints the list of names."""


def print_options(given: Given) -> PrintOptions:
    """Return the options of ``tierwise print``."""
    return PrintOptions(name=given.get("name"))
