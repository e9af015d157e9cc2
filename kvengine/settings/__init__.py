"""The user's settings, read once from all of their sources into one value."""

from kvengine.settings.read import read_settings
from kvengine.settings.values import Settings

__all__ = ["Settings", "read_settings"]
