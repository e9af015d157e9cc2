"""Host memory is released however its process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 60
MIB = 1 << 20


PROGRAM = """
import sys
from kvengine.arena import Arena

class Marking:
    def pin(self, address, size_bytes): print("pinned", flush=True)
    def unpin(self, address): print("unpinned", flush=True)

arena = Arena(130, 1 << 20, Marking())
arena.start()
assert arena.wait(60)
print("ready", hex(arena.address), flush=True)
sys.stdin.read()
"""


def run(program: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True
    )


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_killed_process_leaves_nothing_in_shared_memory() -> None:
    before = shared_memory()
    with run(PROGRAM) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(4)]
        assert [words[0] for words in lines] == ["pinned", "pinned", "pinned", "ready"]
        address = int(lines[3][1], 16)
        # Alive, it has a private mapping without a name or an inode, and holds no segment.
        ranges = [line.split() for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines()]
        bounds = [[int(bound, 16) for bound in words[0].split("-")] for words in ranges]
        (mapping,) = [words for words, (low, high) in zip(ranges, bounds, strict=True) if low <= address < high]
        assert mapping[1] == "rw-p"
        assert mapping[4] == "0"
        assert len(mapping) == 5 or mapping[5].startswith("[anon")
        segments = Path("/proc/sysvipc/shm")
        owners = [line.split()[4] for line in segments.read_text().splitlines()[1:]] if segments.exists() else []
        assert str(process.pid) not in owners
        assert not {name for name in shared_memory() - before if "kvengine" in name}
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        pid = process.pid
    assert not Path(f"/proc/{pid}").exists()
    assert not {name for name in shared_memory() - before if "kvengine" in name or str(pid) in name}


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "del arena"])
def test_a_process_that_ends_without_a_word_unpins(end: str) -> None:
    with run(PROGRAM + end) as process:
        written, _ = process.communicate("", timeout=PATIENCE_S)
    assert written.count("unpinned") == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_process_does_not_get_the_memory() -> None:
    program = PROGRAM.replace(
        "sys.stdin.read()",
        """
import ctypes, os
child = os.fork()
if not child:
    os._exit(ctypes.string_at(arena.address, 1)[0])
print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
""",
    )
    with run(program) as process:
        written, _ = process.communicate("", timeout=PATIENCE_S)
    assert str(int(signal.SIGSEGV)) in written.splitlines()


COPIES = """
import sys
import numpy as np
from kvengine.arena import Arena
from kvengine.copiers import CheckedCopier, Direction, HostCopier
from kvengine.copiers.base import JobId
from kvengine.layout import Fragments

MIB, jobs, pieces = 1 << 20, 40, 64
arena = Arena(pieces, MIB)
arena.start()
arena.wait()
copier = HostCopier() if sys.argv[1] == "plain" else CheckedCopier(HostCopier(), arena.address, MIB)
arena.end_before(copier.close)
device = np.zeros(pieces * MIB, dtype=np.uint8)
at = np.arange(pieces, dtype=np.int64) * MIB
for job in range(jobs):
    copier.submit(
        JobId(job), Direction.STORE, Fragments(device.ctypes.data + at, arena.address + at, np.full(pieces, MIB))
    )
if sys.argv[2] == "collected":
    del arena
    print(len(copier.poll()))
else:
    print(jobs)
"""


@pytest.mark.parametrize("end", ["collected", "interpreter"])
@pytest.mark.parametrize("copier", ["plain", "checked"])
def test_memory_is_not_given_back_while_copies_run(copier: str, end: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", COPIES, copier, end], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "40\n"), ran.stderr
