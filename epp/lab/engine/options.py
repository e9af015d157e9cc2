"""The options of ``tierwise sim``."""

from __future__ import annotations

from dataclasses import dataclass

from epp.runtime.options import LogOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """``tierwise sim``: simulated vLLM servers on consecutive ports."""

    endpoints: int = 4
    port: int = 8000
    """The first one's; 0 takes free ports."""
    host: str = "127.0.0.1"
    preset: str | None = None
    """None for the simulator's own default."""
    served_model_names: tuple[str, ...] = ()
    """What requests may call the model; none is the preset's own name."""
    adapters: tuple[tuple[str, str], ...] = ()
    """The name and the path of each LoRA adapter."""
    kv_events_port: int | None = None
    """The first endpoint's port for KV events, the others take the next ones; None publishes none."""
    kv_replay_port: int | None = None
    """The first endpoint's port for the replay of events, likewise."""
    log: LogOptions = LogOptions()
