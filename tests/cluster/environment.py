"""Finds or builds the programs of a Kubernetes control plane, and prints the folder they are in.

    python tests/cluster/environment.py

kube-apiserver is built from its pinned Go modules (``tools/go.mod``, three minutes on two cores) into the user's cache
folder, under a hash of ``tools/go.sum``; etcd is the system's (Debian's package ``etcd-server``). Programs of your own
are used instead where ``KUBEBUILDER_ASSETS`` names their folder, as with envtest. If something is missing that cannot
be made, the script prints one sentence and exits with status 3. The script needs the standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
KUBERNETES = "v1.35.0"
API_SERVER, ETCD = "kube-apiserver", "etcd"
CANNOT = 3


class Unavailable(Exception):
    """The programs cannot be had here, for the reason in the message."""


def folder() -> Path:
    """Return the folder that has kube-apiserver, whether it was built yet or not."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        return Path(assets)
    digest = hashlib.sha256((TOOLS / "go.sum").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "tierwise" / f"kubernetes-{digest}"


def api_server() -> Path:
    """Return kube-apiserver. Raises: Unavailable if it was not built."""
    program = folder() / API_SERVER
    if not program.is_file():
        raise Unavailable(f"no {program}; `make test-cluster` builds it where Go is")
    return program


def etcd() -> Path:
    """Return etcd, of the same folder or of the system. Raises: Unavailable."""
    own = folder() / ETCD
    found = str(own) if own.is_file() else shutil.which(ETCD)
    if found is None:
        raise Unavailable("no etcd; install the package etcd-server, or name a folder in KUBEBUILDER_ASSETS")
    return Path(found)


def build() -> None:
    """Build what is missing. Raises: Unavailable."""
    target = folder()
    if "KUBEBUILDER_ASSETS" in os.environ or (target / API_SERVER).is_file():
        return
    go = shutil.which("go")
    if go is None:
        raise Unavailable(
            "kube-apiserver is built with Go, which is not here; or name its folder in KUBEBUILDER_ASSETS"
        )
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two test runs at the same time, only one builds
        if (target / API_SERVER).is_file():
            return
        print(f"building kube-apiserver {KUBERNETES} in {target}, once, for some minutes ...", file=sys.stderr)
        part = target / f"{API_SERVER}.part"
        flags = f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES}"
        command = [
            go,
            "build",
            "-mod=readonly",
            "-ldflags",
            flags,
            "-o",
            str(part),
            f"k8s.io/kubernetes/cmd/{API_SERVER}",
        ]
        made = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=False)
        if made.returncode:
            raise Unavailable(f"kube-apiserver cannot be built here: {made.stderr.strip().splitlines()[-1]}")
        part.rename(target / API_SERVER)


def main() -> int:
    """Build, and print the folder."""
    try:
        build()
        etcd()
        print(api_server().parent)
    except Unavailable as reason:
        print(f"the tests with a real Kubernetes API server are skipped: {reason}", file=sys.stderr)
        return CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main())
