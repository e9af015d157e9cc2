"""What the user asked for: read once, from wherever it is written, into one value."""

from kvengine.settings.read import read_settings
from kvengine.settings.values import Settings

__all__ = ["Settings", "read_settings"]
