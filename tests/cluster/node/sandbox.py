"""A container: a process that is PID 1 of its own, with its own root and the network of its pod."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from asyncio.subprocess import Process
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.node.images import needed
from tests.cluster.node.network import TIED

PATIENCE_S = 10.0


@dataclass(frozen=True)
class Mount:
    """A folder or file of this machine that the container sees at ``path``."""

    source: Path
    path: str
    read_only: bool


@dataclass(frozen=True)
class Launch:
    """Everything that a container is started with."""

    words: list[str]
    environment: dict[str, str]
    mounts: list[Mount]
    folder: Path
    """For this container alone: its log and its place for mounts."""

    hostname: str
    user: int = 0
    read_only_root: bool = False
    directory: str | None = None
    log: Path = field(default_factory=Path)


class Container:
    """A started container. ``wait`` is how one learns that it ended."""

    def __init__(self, process: Process, identity: list[str]) -> None:
        self._process, self._identity = process, identity
        self.pid: int | None = None
        """PID 1 of the container, as this machine numbers it."""

    async def begin(self) -> None:
        """Wait until PID 1 is there. It may have ended already."""
        starter = self._process.pid
        async with asyncio.timeout(PATIENCE_S):
            while self._process.returncode is None:
                if found := _children(starter):
                    self.pid = found[0]
                    return
                await asyncio.sleep(0.005)

    async def wait(self) -> int:
        """Return the exit status; 128 and the signal's number for one that a signal ended."""
        status = await self._process.wait()
        return 128 - status if status < 0 else status

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to PID 1."""
        if self.pid is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def inside(self, words: list[str]) -> list[str]:
        """Return the command that runs ``words`` in the container."""
        enter = ("nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "--uts", "--root", "--wd")
        return [*TIED, *enter, "--", *self._identity, *words]


async def start(launch: Launch, pause: int) -> Container:
    """Start a container in the network of the process ``pause``."""
    launch.folder.mkdir(parents=True, exist_ok=True)
    script = launch.folder / "start"
    identity = _identity(launch)
    script.write_text(_script(launch, identity))
    enter = ("nsenter", "--target", str(pause), "--net", "--")
    apart = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child=KILL", "--", "sh", str(script))
    with launch.log.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *TIED, *enter, *apart, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=launch.environment
        )
    container = Container(process, identity)
    await container.begin()
    return container


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _identity(launch: Launch) -> list[str]:
    if not launch.user:
        return []
    user = str(launch.user)
    groups = ("--reuid", user, "--regid", user, "--clear-groups")
    # A change of the user would untie the container from the node: it would outlive a node that is killed.
    return ["setpriv", "--pdeathsig", "KILL", *groups, "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--"]


def _script(launch: Launch, identity: list[str]) -> str:
    """Return what PID 1 does first: a root over this machine's, and the mounts in it."""
    root = "$here/root"
    lines = [
        "set -e",
        f"here={shlex.quote(str(launch.folder / 'mnt'))}",
        'mkdir -p "$here"',
        'mount -t tmpfs -o mode=755 none "$here"',
        'mkdir "$here/upper" "$here/work" "$here/root"',
        'mount -t overlay overlay -o "lowerdir=/,upperdir=$here/upper,workdir=$here/work" "$here/root"',
        f'mount -t proc proc "{root}/proc"',
        f'mount --rbind /sys "{root}/sys"',
        f'mount --rbind /dev "{root}/dev"',
        f'mount -t tmpfs none "{root}/dev/shm"',
        *_opened(root),
        f'chroot "{root}" rm -rf /var/run/secrets',  # those of this machine
        f"hostname {shlex.quote(launch.hostname)}",
    ]
    for mount in sorted(launch.mounts, key=lambda one: one.path):
        lines += _mounted(mount, root)
    for folder in needed():  # which a volume may hide, such as one at /tmp, where an earlier container left it empty
        here, there = shlex.quote(str(folder)), f'"{root}"{shlex.quote(str(folder))}'
        lines.append(f'[ -n "$(ls -A {there} 2>/dev/null)" ] || {{ mkdir -p {there}; mount --rbind {here} {there}; }}')
    if launch.read_only_root:
        lines.append(f'mount -o remount,ro "{root}"')
    directory = ["env", f"--chdir={launch.directory}"] if launch.directory else []
    return "\n".join([*lines, f'exec chroot "{root}" {shlex.join([*identity, *directory, *launch.words])}', ""])


def _opened(root: str) -> list[str]:
    """Return what lets every user reach the programs, which may be in the home of root or in another private folder.

    In the container's root, a change of a folder's mode is a copy: this machine's folder keeps its own.
    """
    ways = {parent for folder in needed() for parent in (folder, *folder.parents)}
    there = [f'"{root}"{shlex.quote(str(folder))}' for folder in sorted(ways)]
    return [f"[ ! -d {one} ] || chmod a+rx {one}" for one in there]


def _mounted(mount: Mount, root: str) -> list[str]:
    # Links are followed inside the new root: /var/run is an absolute one.
    lines = [f'there="{root}$(chroot "{root}" realpath -m {shlex.quote(mount.path)})"']
    if mount.source.is_dir():
        lines.append('mkdir -p "$there"')
    else:
        lines.append('mkdir -p "${there%/*}"; [ -e "$there" ] || touch "$there"')
    lines.append(f'mount --bind {shlex.quote(str(mount.source))} "$there"')
    return [*lines, 'mount -o remount,bind,ro "$there"'] if mount.read_only else lines
