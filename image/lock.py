"""Writes the lock files of the image: every wheel with its hashes, for both architectures.

    python image/lock.py

The versions are those of ``constraints.txt``. pip resolves the image's extras once per architecture and reports the
hash of each wheel; a wheel that is the same for both has one hash.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("epp", "precise", "cel", "otel")
BUILD = ("setuptools",)
PYTHON = "3.11"
GLIBC = 36
"""The minor version of glibc 2 in Debian 12, on which the image is based."""
MACHINES = ("x86_64", "aarch64")
HEAD = "# Written by image/lock.py: wheels for x86_64 and aarch64, with Python 3.11 and glibc 2.36 or newer.\n"


def requirements(extras: tuple[str, ...]) -> list[str]:
    """Return what the distribution needs with ``extras``, without itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[str] = list(project["dependencies"])
    pending = list(extras)
    while pending:
        for each in project["optional-dependencies"][pending.pop()]:
            if each.startswith(project["name"] + "["):
                pending += each.partition("[")[2].rstrip("]").split(",")
            else:
                found.append(each)
    return sorted(set(found))


def hashes(wanted: list[str], machine: str) -> dict[str, str]:
    """Return each distribution, as ``name==version``, with the hash of its wheel. Raises: CalledProcessError."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(17, GLIBC + 1)] + [f"manylinux2014_{machine}"]
    with tempfile.TemporaryDirectory() as target:
        command = [
            sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--dry-run", "--quiet",
            "--ignore-installed", "--only-binary", ":all:", "--implementation", "cp", "--python-version", PYTHON,
            *(word for tag in tags for word in ("--platform", tag)), "--target", target,
            "--constraint", str(ROOT / "constraints.txt"), "--report", "-", *wanted,
        ]  # fmt: skip
        report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)  # noqa: S603
    return {
        f"{each['metadata']['name'].lower().replace('_', '-')}=={each['metadata']['version']}": each["download_info"][
            "archive_info"
        ]["hashes"]["sha256"]
        for each in report["install"]
    }


def locked(wanted: list[str]) -> str:
    """Return the text of a lock file."""
    found: dict[str, set[str]] = defaultdict(set)
    for machine in MACHINES:
        for name, digest in hashes(wanted, machine).items():
            found[name].add(digest)
    lines = [
        " \\\n    ".join([name, *(f"--hash=sha256:{digest}" for digest in sorted(digests))])
        for name, digests in sorted(found.items())
    ]
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """Write both files."""
    (ROOT / "image" / "requirements.txt").write_text(locked(requirements(EXTRAS)))
    (ROOT / "image" / "build-requirements.txt").write_text(locked(list(BUILD)))


if __name__ == "__main__":
    main()
