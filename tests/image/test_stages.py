"""The stages of the Dockerfile, run without a container: its commands as they stand, in namespaces of Linux.

The first stage fills a folder that is `/opt` for its commands. The last stage's process then runs as PID 1, without
root, on file systems that are read-only except for `/tmp`, and without a shell.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.control_plane import free_port
from tests.image.dockerfile import ROOT, pairs, rests, stages, words

BUILD_S, DEADLINE_S = 500.0, 60.0
PYTHON = Path(sys.base_prefix)
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def opt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first stage leaves in /opt."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        pytest.skip("the stages run in namespaces, which takes root and the programs unshare and setpriv")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the wheels of the image are those for Python 3.11")
    folder = tmp_path_factory.mktemp("image") / "opt"
    source = folder / "source"
    source.mkdir(parents=True)
    _, build, _ = stages()
    for rest in rests(build, "COPY"):
        *copied, target = rest.split()
        for each in copied:
            if (ROOT / each).is_dir():
                shutil.copytree(
                    ROOT / each, source / target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                (source / target).mkdir(exist_ok=True, parents=True)
                shutil.copy(ROOT / each, source / target)
    (workdir,) = rests(build, "WORKDIR")
    script = "\n".join(["set -e", f"mount --bind {folder} /opt", f"cd {workdir}", *rests(build, "RUN")])
    path = f"{PYTHON}/bin:/usr/bin:/bin"
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], env={"PATH": path, "HOME": str(Path.home())},
        capture_output=True, text=True, check=False, timeout=BUILD_S,
    )  # fmt: skip
    if ran.returncode and "No matching distribution" in ran.stderr and "connection" in ran.stderr.lower():
        pytest.skip("the package index cannot be reached from here, so the locked wheels cannot be had")
    assert ran.returncode == 0, ran.stderr[-3000:]
    return folder


def contained(opt: Path, *arguments: str) -> list[str]:
    """The command that runs a program as the last stage would, with the arguments in the place of its own."""
    _, _, run = stages()
    user, group = rests(run, "USER")[0].split(":")
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in pairs(run, "ENV").items())
    hidden = Path("/", *PYTHON.parts[1:2])  # a folder that only root may enter has a stand-in, with Python in it
    script = f"""set -e
        mount --bind {opt} /opt
        mkdir -p /opt/.python && mount --bind {PYTHON} /opt/.python
        mount -t tmpfs -o mode=755 tmpfs {hidden}
        mkdir -p {PYTHON} && mount --bind /opt/.python {PYTHON} && mount -o remount,bind,ro {PYTHON}
        mount -o remount,ro {hidden}
        mount -t tmpfs tmpfs /tmp
        mount -o remount,bind,ro /opt
        mount -o remount,bind,ro /
        for shell in sh bash dash; do mount --bind /dev/null /usr/bin/$shell; done
        cd /
        exec env -i {variables} setpriv --reuid {user} --regid {group} --clear-groups --no-new-privs \
            --inh-caps=-all --bounding-set=-all {shlex.join(arguments)}
    """
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]


@contextmanager
def running(opt: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process that waits for it, and its own number outside of the namespace."""
    with subprocess.Popen(
        contained(opt, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            deadline = time.monotonic() + DEADLINE_S
            while not children.read_text().split():
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.02)
            yield process, int(children.read_text().split()[0])
        finally:
            process.kill()


def status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def ended(opt: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(contained(opt, *arguments), capture_output=True, text=True, check=False, timeout=DEADLINE_S)


def test_the_picker_is_pid_1_on_read_only_file_systems_and_ends_at_sigterm(opt: Path) -> None:
    _, _, run = stages()
    metrics, ext_proc, health = free_port(), free_port(), free_port()
    ports = [f"--grpc-port={ext_proc}", f"--grpc-health-port={health}", f"--metrics-port={metrics}"]
    command = words(run, "ENTRYPOINT") + words(run, "CMD")
    with running(opt, *command, "--endpoint=127.0.0.1:9", *ports) as (process, pid):
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=5) as answer:
                    page = answer.read()
                break
            except OSError:
                assert process.poll() is None, process.stdout and process.stdout.read()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert b"tierwise_" in page
        about = status(pid)
        assert about["NSpid"][-1] == "1"
        assert about["Uid"] == ["65532"] * 4
        assert int(about["CapEff"][0], 16) == 0
        mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
        options = {each[4]: each[5].split(",") for each in mounts}  # the last mount at a place is the one that is seen
        assert "ro" in options["/"]
        assert "ro" in options["/opt"]
        assert "rw" in options["/tmp"]
        begun = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0, process.stdout and process.stdout.read()
        assert time.monotonic() - begun < 10, "nothing was in flight"


def test_there_is_no_shell_and_nothing_can_be_written(opt: Path) -> None:
    """What the first test relies on: the same command line with other programs."""
    assert ended(opt, "/usr/bin/sh", "-c", "true").returncode != 0
    code = "import pathlib; pathlib.Path('/tmp/x').touch(); pathlib.Path('/opt/tierwise/x').touch()"
    ran = ended(opt, "python", "-c", code)
    assert "Read-only file system: '/opt/tierwise/x'" in ran.stderr


def test_a_configuration_is_checked_in_the_image(opt: Path) -> None:
    printed = ended(opt, "tierwise", "print", "cost")
    assert printed.returncode == 0, printed.stderr
    assert "tier-cost-scorer" in printed.stdout


def test_kvengine_is_copied_for_a_model_server(opt: Path) -> None:
    """The init container of the chart, with a volume that it may write."""
    ran = ended(opt, "python", "-m", "kvengine.install", "/tmp")
    assert (ran.returncode, ran.stdout) == (0, "copied kvengine to /tmp/kvengine; set PYTHONPATH=/tmp\n"), ran.stderr


def test_every_module_has_bytecode_that_python_takes_without_looking_at_the_source(opt: Path) -> None:
    site = next((opt / "tierwise" / "lib").glob("python3.*/site-packages"))
    for package in ("epp", "scorers", "kvengine", "aiohttp", "msgspec"):
        for source in (site / package).rglob("*.py"):
            compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-311.pyc"
            assert compiled.read_bytes()[4:8] == b"\1\0\0\0", f"{source}: flags of PEP 552, a hash that is not checked"


def test_neither_pip_nor_setuptools_is_in_the_image(opt: Path) -> None:
    site = next((opt / "tierwise" / "lib").glob("python3.*/site-packages"))
    assert not [each.name for each in site.iterdir() if each.name.startswith(("pip", "setuptools"))]
