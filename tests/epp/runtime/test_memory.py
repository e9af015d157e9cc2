from __future__ import annotations

import asyncio
import platform
import subprocess
import sys

import pytest

from epp.runtime.memory import KEEP_BYTES, UNUSED_LOOKS, Unused, give_back_unused, keep_freed_memory

GLIBC = platform.libc_ver()[0] == "glibc"

BURST = """
import asyncio, resource
from pathlib import Path
from epp.runtime.memory import free_bytes, give_back_unused, keep_freed_memory

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 10**6

async def until_given_back():
    async with asyncio.timeout(60):
        memory = asyncio.create_task(give_back_unused(look_every_s=0.01))
        while resident_mb() > peak // 2:
            await asyncio.sleep(0.01)
        memory.cancel()

keep_freed_memory()
before = resident_mb()
bodies, kept = [], []
for _ in range(800):  # prompts of 400 KB, and among them something small that stays
    bodies.append(bytearray(b"x") * 400_000)
    kept.append(bytes(2_000))
bodies.clear()
peak = resident_mb()
assert free_bytes() > 300_000_000, free_bytes()
asyncio.run(until_given_back())
print(before, peak, resident_mb())
"""


def test_glibc_keeps_freed_memory_when_asked() -> None:
    assert keep_freed_memory() == GLIBC


@pytest.mark.skipif(not GLIBC, reason="other C libraries are left as they are")
def test_memory_of_a_burst_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", BURST], capture_output=True, text=True, check=False, timeout=300)
    assert not done.returncode, done.stderr
    before, peak, after = map(int, done.stdout.split())
    assert peak - before > 300, "the burst was resident, and stays so without asking"
    assert after - before < 30


def test_memory_is_unused_once_it_was_free_at_every_look() -> None:
    unused = Unused(looks=3, keep_bytes=100)
    assert [unused.look(free) for free in (101, 101, 100, 101, 101, 101, 101, 101, 101)] == [
        False, False, False, False, False, True, False, False, True,
    ]  # fmt: skip


def test_what_is_free_for_long_is_given_back_again_and_again() -> None:
    async def main() -> int:
        looks, given = [0], asyncio.Event()

        def free() -> int:
            looks[0] += 1
            return KEEP_BYTES + 1 if looks[0] > 5 else 0

        loop = asyncio.get_running_loop()
        memory = asyncio.create_task(
            give_back_unused(free, lambda: loop.call_soon_threadsafe(given.set), look_every_s=0.0)
        )
        await given.wait()
        memory.cancel()
        return looks[0]

    assert asyncio.run(main()) >= 5 + UNUSED_LOOKS
