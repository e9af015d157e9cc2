"""Finds or builds the programs of a Kubernetes cluster, and prints where they are.

    python tests/cluster/environment.py [PROGRAM ...]

Each is built from its pinned Go modules (``tools/``) into the user's cache folder, under a hash of what it is made
from: kube-apiserver in three minutes on two cores, Istio in five, the others in about one each. etcd is the
system's (Debian's package ``etcd-server``). Programs of your own are used instead where ``KUBEBUILDER_ASSETS`` names
their folder, as with envtest. If something is missing that cannot be made, the script prints one sentence, and exits
with status 3 where all tests of the cluster need it. The script needs the standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
KUBERNETES = "v1.35.0"
CANNOT = 3


class Unavailable(Exception):
    """A program cannot be had here, for the reason in the message."""


@dataclass(frozen=True)
class Tool:
    """A program that is built from Go modules: its folder in ``tools/``, its package and its version."""

    modules: str
    package: str
    version: str
    variables: tuple[tuple[str, str], ...]
    tests: bool = False
    """Whether the program is the package's tests."""

    def digest(self) -> str:
        """Return what the program is made from, hashed."""
        parts = ((TOOLS / self.modules / "go.sum").read_bytes(), self.package.encode(), repr(self.variables).encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def command(self, go: str, target: Path) -> list[str]:
        """Return the command that builds the program as ``target``."""
        flags = " ".join(("-s -w", *(f"-X {name}={value}" for name, value in self.variables)))
        verb = ("test", "-c") if self.tests else ("build",)
        return [go, *verb, "-mod=readonly", "-ldflags", flags, "-o", str(target), self.package]


def _kubernetes(name: str) -> Tool:
    version = "k8s.io/component-base/version.git"
    variables = ((f"{version}Version", KUBERNETES), (f"{version}Major", "1"), (f"{version}Minor", "35"))
    return Tool("kubernetes", f"k8s.io/kubernetes/cmd/{name}", KUBERNETES, variables)


def _helm(version: str) -> Tool:
    # Without these helm renders charts for Kubernetes 1.20 where it is not told a version.
    of_kubernetes = tuple(
        (f"helm.sh/helm/v3/pkg/{part}.k8sVersion{name}", value)
        for part in ("chartutil", "lint/rules")
        for name, value in (("Major", "1"), ("Minor", "35"))
    )
    variables = (("helm.sh/helm/v3/internal/version.version", version), *of_kubernetes)
    return Tool("helm", "helm.sh/helm/v3/cmd/helm", version, variables)


def _registry(version: str) -> Tool:
    package = "github.com/distribution/distribution/v3"
    return Tool("registry", f"{package}/cmd/registry", version, ((f"{package}/version.version", version),))


ISTIO = "1.31-eed52ebb66ad"
"""The branch of the release, and its commit, which is the newest one that the module proxy has."""
INFERENCE, GATEWAY_API = "sigs.k8s.io/gateway-api-inference-extension", "sigs.k8s.io/gateway-api"

BUILT = {
    "kube-apiserver": _kubernetes("kube-apiserver"),
    "kube-controller-manager": _kubernetes("kube-controller-manager"),
    "kubectl": _kubernetes("kubectl"),
    "helm": _helm("v3.21.4"),
    "registry": _registry("v3.1.2"),
    "elector": Tool("kubernetes", "./elector", "v1", ()),  # of our own, with client-go's election
    "pilot-discovery": Tool(
        "istio",
        "istio.io/istio/pilot/cmd/pilot-discovery",
        ISTIO,
        (("istio.io/istio/pkg/version.buildVersion", ISTIO),),
    ),
    "inference-conformance": Tool("conformance", f"{INFERENCE}/conformance", "v1.6.0", (), tests=True),
    "lwepp": Tool("conformance", f"{INFERENCE}/cmd/lwepp", "v1.6.0", ()),
    "echo-basic": Tool("conformance", f"{GATEWAY_API}/conformance/echo-basic", "v1.6.1", ()),
}
FOR_GATEWAYS = frozenset({"pilot-discovery", "inference-conformance", "lwepp", "echo-basic"})
"""Programs without which only the tests in ``gateway/`` cannot run."""
INSTALLED = {"etcd": "etcd-server"}
"""Programs of the system, and Debian's packages with them."""


def cache() -> Path:
    """Return the folder that keeps what the tests build or fetch, outside the repository."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tierwise"


def program(name: str) -> Path:
    """Return the program ``name``, which is the user's own, built or the system's. Raises: Unavailable."""
    own = _own(name)
    if own is not None:
        return own
    if name in INSTALLED:
        found = shutil.which(name)
        if found is None:
            raise Unavailable(f"no {name}; install the package {INSTALLED[name]}, or name a folder of your own in "
                              "KUBEBUILDER_ASSETS")  # fmt: skip
        return Path(found)
    built = _built(name)
    if not built.is_file():
        raise Unavailable(f"no {built}; `make test-cluster` builds it where Go is")
    return built


def build(name: str) -> None:
    """Build a program if it is missing. Raises: Unavailable."""
    target = _built(name)
    if _own(name) is not None or target.is_file():
        return
    go = shutil.which("go")
    if go is None:
        raise Unavailable(f"{name} is built with Go, which is not here; or name its folder in KUBEBUILDER_ASSETS")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two test runs at the same time, only one builds
        if target.is_file():
            return
        tool, start = BUILT[name], time.monotonic()
        print(f"building {name} {tool.version} in {target.parent}, once ...", file=sys.stderr, flush=True)
        part = target.with_suffix(".part")
        made = subprocess.run(
            tool.command(go, part), cwd=TOOLS / tool.modules, capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise Unavailable(f"{name} cannot be built here: {made.stderr.strip().splitlines()[-1]}")
        part.rename(target)
        print(f"built {name} in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def fetched(module: str, version: str) -> Path:
    """Return the folder of a Go module, which Go checks and keeps in its own cache. Raises: Unavailable."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable(f"{module} is fetched with Go, which is not here")
    command = [go, "mod", "download", "-json", f"{module}@{version}"]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=False, cwd="/").stdout or "{}")
    if "Dir" not in answer:
        raise Unavailable(f"{module}@{version} cannot be fetched: {answer.get('Error', 'no answer')}")
    return Path(answer["Dir"])


def _own(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    own = Path(assets) / name if assets else None
    return own if own is not None and own.is_file() else None


def _built(name: str) -> Path:
    return cache() / f"{name}-{BUILT[name].version}-{BUILT[name].digest()}" / name


def main(names: list[str]) -> int:
    """Build what is missing of ``names``, or of all programs, and print where each is."""
    missing: dict[str, str] = {}
    for name in names or [*INSTALLED, *BUILT]:
        try:
            if name in BUILT:
                build(name)
            print(program(name))
        except Unavailable as reason:
            missing[name] = str(reason)
    for name, reason in missing.items():
        which = "behind a gateway" if name in FOR_GATEWAYS else "with a real Kubernetes API server"
        print(f"tests {which} are skipped: {reason}", file=sys.stderr)
    return CANNOT if missing.keys() - FOR_GATEWAYS else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
