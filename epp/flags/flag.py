"""The type of a flag. Each command has its flags in ``flags.py`` beside its code.

That file has the table of flags, and the function that makes the options of their values. It does not parse ``argv``:
``epp.commandline.cli`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from epp.flags import values


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: the reader of its text, and the option that it sets."""

    name: str
    read: Callable[[str], object]
    """Raises ValueError with the values that are allowed."""
    field: str
    """The path of the option that the flag sets, such as ``log.verbosity``; empty if it sets none by itself."""
    help: str
    metavar: str = ""
    group: str = ""
    repeated: bool = False
    harmless: object = None
    """The value of an idle flag that requests nothing; None if there is no such value."""
    idle: str = ""
    """Why another value changes nothing; it is accepted with a warning, since it affects no request."""

    @property
    def is_boolean(self) -> bool:
        """Whether ``--name`` alone means ``--name=true``."""
        return self.read is values.boolean


def grouped(name: str, *flags: Flag) -> tuple[Flag, ...]:
    """Return ``flags`` with the title of their group in the help text."""
    return tuple(replace(flag, group=name) for flag in flags)


def idle(name: str, read: Callable[[str], object], why: str, harmless: object = None) -> Flag:
    """Return a flag of the Go picker that is accepted with a warning, since it changes nothing here."""
    return Flag(name, read, "", f"accepted with a warning: {why}", group="Without effect", idle=why, harmless=harmless)
