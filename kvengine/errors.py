"""Every exception that the offload engine raises. A message names the offending value, the limit and the remedy."""

from __future__ import annotations


class KVEngineError(Exception):
    """Base class of every exception in this package."""


class SettingsError(KVEngineError):
    """A setting is invalid; the message names its key, its value and the allowed range."""


class Unsupported(KVEngineError):
    """The offload engine cannot keep the KV of this model, layout or mode of vLLM; the message names it."""


class NoSpace(KVEngineError):
    """Fewer slots are free or idle than an insertion needs."""

    def __init__(self, *, wanted: int, free: int, idle: int) -> None:
        super().__init__(f"{wanted} slots wanted; {free} free, {idle} idle")


class NoMemory(KVEngineError):
    """The kernel does not provide the host memory."""
