"""The distribution in a fresh environment: a wheel of this tree, and of other packages only those that are asked for.

Works without a network: packages are linked from the environment that runs the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PARTS = ("epp", "scorers", "kvengine", "manifests", "pyproject.toml", "README.md", "LICENSE")
NAME = "tierwise"


def wheel(folder: Path) -> Path:
    """A wheel of this tree, made in ``folder``."""
    source, out = folder / "source", folder / "wheel"
    source.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, source / part)
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out), str(source))
    (made,) = out.glob("*.whl")
    return made


def pip(*words: str) -> None:
    """Run pip; what it says is shown where it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment, and a folder away from the repository to run its commands in."""

    folder: Path

    def tierwise(self, *words: str) -> Ran:
        """Run the command ``tierwise``."""
        return self.run("tierwise", *words)

    def run(self, program: str, *words: str) -> Ran:
        """Run a program of the environment."""
        away = self.folder / "away"
        away.mkdir(exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(
            [self.folder / "bin" / program, *words], cwd=away, env=environment, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False, timeout=100,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)


def install(built: Path, folder: Path, extras: Iterable[str] = ()) -> Installed:
    """Install the wheel ``built`` with ``extras`` into a new environment in ``folder``."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    pip("--python", str(folder / "bin" / "python"), "install", "--no-deps", "--no-index", "--quiet", str(built))
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    for each in needed(next(iter(distributions(name=NAME, path=[str(site)]))), frozenset(extras)):
        link(each, site)
    return Installed(folder)


def needed(root: Distribution, extras: frozenset[str]) -> list[Distribution]:
    """Every distribution that ``root`` needs with ``extras``. Skips the test where one is not installed."""
    seen: set[tuple[str, frozenset[str]]] = set()
    pending = required(root, extras)
    while pending:
        name, extras = pending.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        if name == NAME:
            pending += required(root, extras)
            continue
        try:
            pending += required(distribution(name), extras)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed here, and there may be no network to get it from")
    return [distribution(name) for name in {name for name, _ in seen} - {NAME}]


def required(there: Distribution, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """What ``there`` needs with ``extras``: names, each with extras of its own."""
    return [
        (each.name, frozenset(each.extras))
        for each in map(Requirement, there.requires or ())
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in {"", *extras})
    ]


def link(there: Distribution, site: Path) -> None:
    """Make the files of ``there`` importable from ``site``."""
    for top in {file.parts[0] for file in there.files or () if file.parts[0] not in ("..", "__pycache__")}:
        target = Path(str(there.locate_file(top)))
        if not (site / top).exists():
            (site / top).symlink_to(target)
