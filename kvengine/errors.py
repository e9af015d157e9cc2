"""Every refusal of the offload engine. Messages name the value, the limit and what to do."""

from __future__ import annotations


class KVEngineError(Exception):
    """Base of every refusal."""


class SettingsError(KVEngineError):
    """A setting that cannot be used; the message names its key, its value and the allowed range."""


class Unsupported(KVEngineError):
    """A model, layout or mode of vLLM whose KV this engine cannot keep; the message names it."""


class NoSpace(KVEngineError):
    """Fewer slots can be had than are wanted."""

    def __init__(self, *, wanted: int, free: int, idle: int) -> None:
        super().__init__(f"{wanted} slots wanted; {free} free, {idle} idle")


class NoMemory(KVEngineError):
    """The host memory cannot be had."""
