"""A network of its own for one cluster: a namespace with a bridge, in which each pod has a namespace again.

Nothing has a name outside: the namespaces, their interfaces and mounts end with their last process, and each process
ends with the one that started it, so that a test run that is killed leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.environment import Unavailable

GATEWAY = "10.244.0.1"
"""The address of the node, of the API server and of the kubelet."""
PODS = "10.244"
SERVICES = "10.0.0.0/24"
API_ADDRESS, DNS_ADDRESS = "10.0.0.1", "10.0.0.10"
CLONE_NEWNET = 0x40000000
TIED = ("setpriv", "--pdeathsig", "KILL", "--")
"""Before a command: it ends when the thread that started it does."""
NEEDED = ("ip", "unshare", "nsenter", "setpriv", "chroot")
TRIAL = """
ip link add try0 type bridge && ip link add try1 type veth peer name try2 &&
mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work /mnt/root &&
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
"""
WITHIN_S = 10.0


def check() -> None:
    """Raise Unavailable where this machine cannot give pods a network and a root of their own."""
    if os.geteuid() != 0:
        raise Unavailable("pods as processes need root, for namespaces")
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"pods as processes need {', '.join(missing)}, of the packages iproute2 and util-linux")
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", TRIAL], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        raise Unavailable(f"this machine cannot make bridges, veth pairs or overlays: {tried.stderr.strip()}")


@contextmanager
def network() -> Iterator[None]:
    """Run the calling thread, and what it starts, in a new network namespace. Raises: Unavailable."""
    check()
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    process = holder()
    try:
        _enter(_namespace(process.pid))
        _ip(
            "link set lo up",
            "link add pods type bridge",
            f"addr add {GATEWAY}/16 dev pods",
            "link set pods up",
            f"route add local {SERVICES} dev lo",
        )
        yield
    finally:
        _enter(home)
        process.kill()
        process.wait()


def holder() -> subprocess.Popen[bytes]:
    """Return a process that does nothing in a new network namespace, which is ready."""
    here = Path("/proc/thread-self/ns/net").readlink()
    process = subprocess.Popen([*TIED, "unshare", "--net", "sleep", "infinity"])
    deadline = time.monotonic() + WITHIN_S
    while Path(f"/proc/{process.pid}/ns/net").readlink() == here:
        assert time.monotonic() < deadline, "unshare made no network namespace"
        time.sleep(0.005)
    return process


def connect(pid: int, number: int) -> str:
    """Give the namespace of ``pid`` an address and a route; return the address, which is that of ``number``."""
    address = f"{PODS}.{number // 250 + 1}.{number % 250 + 1}"
    _ip(
        f"link add v{pid} type veth peer name eth0 netns {pid}",
        f"link set v{pid} master pods",
        f"link set v{pid} up",
    )
    _ip(
        "link set lo up",
        f"addr add {address}/16 dev eth0",
        "link set eth0 up",
        f"route add default via {GATEWAY}",
        inside=("nsenter", "--target", str(pid), "--net"),
    )
    return address


def dial(pid: int, port: int) -> socket.socket:
    """Return a connection with a port of the loopback interface in the namespace of ``pid``. Raises: OSError."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _enter(_namespace(pid))
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
    finally:
        _enter(home)
    connection.setblocking(False)
    return connection


def _ip(*lines: str, inside: tuple[str, ...] = ()) -> None:
    subprocess.run([*inside, "ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _namespace(pid: int) -> int:
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)


def _enter(namespace: int) -> None:
    """Move the calling thread into a namespace; Python 3.11 has no ``os.setns``."""
    try:
        if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(namespace)
