"""Copiers move bytes between the device and the arena. One file per way to copy."""

from kvengine.copiers.base import Copier, Direction, Done
from kvengine.copiers.checked import CheckedCopier
from kvengine.copiers.host import HostCopier

__all__ = ["CheckedCopier", "Copier", "Direction", "Done", "HostCopier"]
