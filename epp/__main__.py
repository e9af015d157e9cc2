"""``python -m epp``, the picker's command in a container: the same as ``tierwise serve``."""

from __future__ import annotations

import sys

from epp.cli import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]]))
