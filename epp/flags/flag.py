"""What a flag is. Each command has its flags in ``flags.py`` beside its code: the table, and the function that makes
its options of what was given. Nothing there parses ``argv``: ``epp.commandline.cli`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from epp.flags import values


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: how its text is read and which option it sets."""

    name: str
    read: Callable[[str], object]
    """Raises ValueError that says what is allowed."""
    field: str
    """The path of the option that the flag sets, such as ``log.verbosity``; empty if it sets none by itself."""
    help: str
    metavar: str = ""
    group: str = ""
    repeated: bool = False
    refusal: str = ""
    """Why it cannot be honoured and what to do instead; empty for a flag that is."""
    harmless: object = None
    """The value of a refused or idle flag that asks for nothing; None if there is none."""
    idle: str = ""
    """Why another value changes nothing: accepted with a warning, since it affects no request."""

    @property
    def is_boolean(self) -> bool:
        """Whether ``--name`` alone means ``--name=true``."""
        return self.read is values.boolean


def grouped(name: str, *flags: Flag) -> tuple[Flag, ...]:
    """``flags`` under one title of the help text."""
    return tuple(replace(flag, group=name) for flag in flags)
