"""``python -m epp``, the picker's command in a container: the same as ``tierwise serve``."""

from __future__ import annotations

import sys

from epp.commandline.entry import serve

if __name__ == "__main__":
    sys.exit(serve())
