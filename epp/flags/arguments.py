"""Rewrites Go's spellings of arguments, and puts the values of flags into options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from epp.errors import ConfigError
from epp.flags.flag import Flag
from epp.flags.values import is_boolean

T = TypeVar("T")


Given = Mapping[str, Any]
"""The flags that were set explicitly: values by name; a repeated flag has the tuple of all its values."""


def normalise(arguments: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    """Return ``arguments`` without Go's spellings: two dashes for one, ``--flag=true`` for a boolean's ``--flag``.

    Raises: ConfigError for a boolean's value that is a word of its own.
    """
    by_name = {flag.name: flag for flag in flags}
    plain: list[str] = []
    rest = iter(arguments)
    after_boolean = ""  # such a flag, written alone
    for argument in rest:
        if after_boolean and is_boolean(argument):
            raise ConfigError(
                f"{after_boolean} {argument}: a boolean's value is written behind =; write {after_boolean}={argument}"
            )
        after_boolean = ""
        if argument == "--":
            return [*plain, argument, *rest]
        name, equals, value = argument.lstrip("-").partition("=")
        flag = by_name.get(name)
        if not argument.startswith("-") or argument.startswith("---"):
            plain.append(argument)
        elif flag is None:  # -h stays; a slip in a long name is still a long name
            plain.append(f"-{argument}" if len(name) > 1 and argument[1] != "-" else argument)
        elif equals or flag.is_boolean:
            plain.append(f"--{name}={value if equals else 'true'}")
            after_boolean = argument if not equals else ""
        else:
            following = next(rest, None)
            plain.append(f"--{name}" if following is None else f"--{name}={following}")
    return plain


def with_fields(options: T, given: Given, flags: Sequence[Flag]) -> T:
    """Return ``options`` with the values of the flags in ``given``."""
    for flag in flags:
        if flag.field and flag.name in given and not flag.repeated:
            options = _with(options, flag.field, given[flag.name])
    return options


def _with(options: Any, field: str, value: object) -> Any:
    head, _, inner = field.partition(".")
    return replace(options, **{head: _with(getattr(options, head), inner, value) if inner else value})
