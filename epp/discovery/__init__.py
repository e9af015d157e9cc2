"""Discovery: where the endpoints come from."""

from epp.discovery.file import FileDiscovery

__all__ = ["FileDiscovery"]
