from __future__ import annotations

import platform

from epp.allocator import keep_freed_memory


def test_glibc_keeps_freed_memory_when_asked() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
