"""Copies the package ``kvengine`` into a folder for ``PYTHONPATH``: ``python -m kvengine.install FOLDER``.

An init container runs it, so that any image with vLLM gets kvengine without being built anew. What kvengine imports is
part of vLLM's image.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent


def install(folder: Path) -> Path:
    """Copy the package into ``folder``, and return the copy. An earlier copy, complete or not, is replaced.

    Raises: OSError if the folder cannot be written.
    """
    target = folder / PACKAGE.name
    part = folder / f"{PACKAGE.name}.part"
    for left in (part, target):
        if left.exists():
            shutil.rmtree(left)
    shutil.copytree(PACKAGE, part, ignore=shutil.ignore_patterns("__pycache__"))
    part.rename(target)  # a container that was killed while it copied leaves no package that lacks files
    return target


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    if len(arguments) != 1:
        print("usage: python -m kvengine.install FOLDER", file=sys.stderr)
        return 2
    try:
        target = install(Path(arguments[0]))
    except OSError as error:
        print(f"kvengine cannot be copied into {arguments[0]}: {error}", file=sys.stderr)
        return 1
    print(f"copied kvengine to {target}; set PYTHONPATH={arguments[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
