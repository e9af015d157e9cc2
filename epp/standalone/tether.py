"""Replaces itself with another program, which the kernel kills when the program that started it is gone.

Run as a script, ``python tether.py PARENT_PID PROGRAM ARGUMENT...``. A signal at the parent's death has to be requested
by the child itself, between fork and exec, where a threaded program must not run Python code. So a small interpreter
requests it and then executes the program. It also raises the limit of open files to its maximum, since a proxy needs
two for every request.
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Execute the program, or exit with a sentence on standard error; never returns."""
    parent, program = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the kernel had the request
        sys.exit(1)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        os.execv(program, sys.argv[2:])  # noqa: S606 - its own arguments
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")


if __name__ == "__main__":
    main()
