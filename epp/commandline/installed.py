"""What is installed: the version of this distribution."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The distribution's version, or that there is none: the code is used from a folder."""
    try:
        return version("tierwise")
    except PackageNotFoundError:
        return "(not installed)"
