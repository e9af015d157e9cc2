"""The entry point of every command: ``tierwise``, and ``python -m epp``.

It imports only the standard library at first, so that a missing package is one sentence whatever is installed. Without
the extra ``epp``, ``--version`` and the list of commands still work.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from epp.commandline.exit_codes import DONE, INTERRUPTED, USAGE_ERROR
from epp.commandline.extras import remedy

HELP = (["-h"], ["--help"], ["help"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (the process's own by default) and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        from epp.commandline import cli

        return cli.main(words)
    except KeyboardInterrupt:  # while libraries are imported, which takes a second on a busy machine
        return INTERRUPTED
    except ModuleNotFoundError as error:
        missing = remedy(error, _extra(words))
        if missing is None:
            raise
        return _without_library(words, missing)


def serve() -> int:
    """Run ``tierwise serve`` with the process's own arguments, for ``python -m epp``."""
    return main(["serve", *sys.argv[1:]])


def _extra(words: Sequence[str]) -> str:
    """Return the extra that the command in ``words`` needs; ``epp`` if they name no command."""
    try:
        from epp.commandline.programs import PROGRAMS
    except ModuleNotFoundError:
        return "epp"
    named = words[1:2] if words[:1] == ["help"] else words[:1]
    return next((program.extra for program in PROGRAMS if [program.name] == list(named)), "epp")


def _without_library(words: Sequence[str], missing: str) -> int:
    """Answer what can be answered without the command line's library; anything else is refused."""
    if words == ["--version"]:
        from epp.commandline.installed import installed_version

        print(f"tierwise, version {installed_version()}")
        return DONE
    if not words or words in HELP:
        try:
            from epp.commandline.programs import PROGRAMS
        except ModuleNotFoundError:
            pass
        else:
            for program in PROGRAMS:
                print(f"{program.name:<12}{program.summary}")
            print(f"\nNone of these can run yet: {missing}")
            return DONE
    print(f"tierwise: {missing}", file=sys.stderr)
    return USAGE_ERROR
