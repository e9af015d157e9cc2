"""The machine and the commit that a figure was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def machine() -> str:
    """Return the processor, its load and the commit; nothing that identifies the machine."""
    git = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False, cwd=Path(__file__).parent).stdout.strip()
    load = "/".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"commit {commit or 'unknown'}; {os.cpu_count()} CPUs, {platform.machine()}, CPython "
        f"{platform.python_version()}; load average {load}"
    )
