"""Runs an exec plugin and passes on what it prints, up to a limit: a program of its own.

    python epp/kube/kubeconfig/bounded_plugin.py COMMAND [ARGUMENT ...]

The library that reads kubeconfigs keeps whatever a plugin prints in memory, and reads its errors only after its
output, so that a plugin with many warnings would never end. The program needs the standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import IO

MOST_BYTES = 1 << 20
"""Credentials with certificates are a few kilobytes."""
MOST_ERROR_BYTES = 4096


def _drain(stream: IO[bytes], kept: bytearray) -> None:
    while piece := os.read(stream.fileno(), 1 << 16):
        kept += piece[: MOST_ERROR_BYTES - len(kept)]


def main() -> int:
    """Run the plugin of the command line, and return its exit status."""
    command = sys.argv[1:]
    try:
        plugin = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603 (as configured)
    except OSError as error:
        print(f"{error.strerror}: is it on the PATH?", file=sys.stderr)
        return 127
    if plugin.stdout is None or plugin.stderr is None:
        raise RuntimeError("both were asked for")
    errors = bytearray()
    reader = threading.Thread(target=_drain, args=(plugin.stderr, errors), daemon=True)
    reader.start()
    printed = plugin.stdout.read(MOST_BYTES + 1)
    if len(printed) > MOST_BYTES:
        plugin.kill()
        print(f"it printed more than {MOST_BYTES:,} bytes", file=sys.stderr)
        return 1
    status = plugin.wait()
    reader.join(1.0)  # a process that the plugin left behind may keep it open
    sys.stderr.buffer.write(errors)
    sys.stdout.buffer.write(printed)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
