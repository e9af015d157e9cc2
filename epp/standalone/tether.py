"""Become another program that the kernel kills when the program that started it is gone.

Run as a script, ``python tether.py PARENT_PID PROGRAM ARGUMENT...``: a signal at the parent's death has to be asked
for by the child itself, between fork and exec, where a threaded program must not run Python code. So a small
interpreter asks for it, and then turns into the program. On the way it takes all the open files that it may have: a
proxy needs two for every request.
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never return: exec, or exit with a sentence on standard error."""
    parent, program = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel knew
        sys.exit(1)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        os.execv(program, sys.argv[2:])  # noqa: S606 - its own arguments
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")


if __name__ == "__main__":
    main()
