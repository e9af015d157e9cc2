"""Expressions in the Common Expression Language, compiled once. The only place that knows the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

Expression: TypeAlias = Callable[[Mapping[str, object]], object]


def compiled(text: str) -> Expression:
    """What computes ``text`` from named values. It raises whatever is wrong with them.

    Raises: ValueError for a text that is no expression, or when the library is not installed.
    """
    try:
        import cel
    except ImportError as error:
        raise ValueError("expressions need a library: pip install '.[cel]' in a clone of Tierwise") from error
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no expression: {str(error).splitlines()[0]}") from error
    return lambda values: program.execute(dict(values))
