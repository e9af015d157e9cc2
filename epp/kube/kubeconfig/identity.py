"""Chooses the API server and the identity of a picker, in the order of kubectl's and the Go picker's library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from epp.errors import ConfigError
from epp.kube.access import HOST, SERVICE_ACCOUNT, Access, InCluster
from epp.kube.kubeconfig.files import open_kubeconfig

KUBECONFIG = "KUBECONFIG"
"""The variable that names kubeconfig files, separated as in PATH."""


class NoApiServer(ConfigError):
    """Nothing says which API server is meant."""


async def open_access(kubeconfig: Path | None, environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """Return the access by the flag, by ``KUBECONFIG``, of the pod, or by ``~/.kube/config``: the first that is there.

    Raises: NoApiServer if there is none; ConfigError if the first one cannot be used.
    """
    files = named_files(kubeconfig, environ)
    if files:
        return await open_kubeconfig(files)
    usual = Path(environ.get("HOME") or "/") / ".kube" / "config"
    if environ.get(HOST) and ((folder / "token").exists() or not usual.exists()):
        return InCluster(environ, folder)
    if not usual.exists():
        raise NoApiServer(
            f"there is no API server: this is not a pod ({HOST} is not set), and there is no kubeconfig; pass "
            f"--kubeconfig, set {KUBECONFIG}, or make {usual}"
        )
    return await open_kubeconfig([str(usual)])


def named_files(kubeconfig: Path | None, environ: Mapping[str, str]) -> list[str]:
    """Return the kubeconfig files that the flag or else the variable names; those that are missing are left out.

    Raises: ConfigError if they are named and none is there.
    """
    if kubeconfig is not None:
        if not kubeconfig.exists():
            raise ConfigError(f"--kubeconfig={kubeconfig}: there is no such file")
        return [str(kubeconfig)]
    named = [name for name in environ.get(KUBECONFIG, "").split(os.pathsep) if name]
    there = [str(file) for file in (Path(name).expanduser() for name in named) if file.exists()]
    if named and not there:
        raise ConfigError(f"{KUBECONFIG}={environ[KUBECONFIG]}: none of these files is there")
    return there
