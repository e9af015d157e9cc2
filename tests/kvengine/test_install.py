"""The package copied for an image that does not have it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kvengine.install import PACKAGE, install, main


def files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_copy_has_every_file_of_the_package(tmp_path: Path) -> None:
    assert files(install(tmp_path)) == files(PACKAGE)


def test_the_copy_is_what_python_imports_from_there(tmp_path: Path) -> None:
    """As in vLLM's image, where the package is on PYTHONPATH and nowhere else."""
    install(tmp_path)
    code = "import kvengine.settings as s; print(s.__file__); print(s.read_settings({'cpu_bytes_to_use': 7}, {})[0])"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    where, settings = ran.stdout.splitlines()
    assert where.startswith(str(tmp_path))
    assert "cpu_bytes_to_use=7" in settings


def test_a_container_that_starts_again_replaces_what_the_first_one_left(tmp_path: Path) -> None:
    (tmp_path / "kvengine.part").mkdir()
    (tmp_path / "kvengine").mkdir()
    (tmp_path / "kvengine" / "of_an_older_version.py").touch()
    assert main([str(tmp_path)]) == 0
    assert files(tmp_path / "kvengine") == files(PACKAGE)
    assert not (tmp_path / "kvengine.part").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = subprocess.run(
        [sys.executable, "-m", "kvengine.install", str(tmp_path / "file")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"kvengine cannot be copied into {tmp_path / 'file'}: ")


def test_without_a_folder_it_says_how_it_is_used() -> None:
    assert main([]) == 2
