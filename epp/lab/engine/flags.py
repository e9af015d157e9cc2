"""The flags of ``tierwise sim``."""

from __future__ import annotations

from epp.flags import values
from epp.flags.flag import VERBOSITY, Flag, grouped


def _adapter(text: str) -> tuple[str, str]:
    """Read ``NAME`` or ``NAME=PATH``. Raises: ValueError if the name or the path is empty."""
    name, equals, path = text.partition("=")
    if not name or (equals and not path):
        raise ValueError("write NAME, or NAME=PATH")
    return name, path or name


SIM: tuple[Flag, ...] = grouped(
    "Flags",
    Flag("endpoints", values.integer(1, 1000), "endpoints", "how many servers (default 4)", "N"),
    Flag("port", values.port, "port", "of the first, the others follow; 0 takes free ones (default 8000)", "PORT"),
    Flag("host", values.text, "host", "address to listen on (default 127.0.0.1)", "ADDRESS"),
    Flag(
        "preset",
        values.text,
        "preset",
        "model and hardware: demo, qwen3-32b-tp2-h100, llama-3.1-8b-l4 (default demo)",
        "NAME",
    ),
    Flag(
        "served-model-name", values.text, "", "a name for the model in place of its own; repeat it for several, of "
        "which the first is in answers and metrics", "NAME", repeated=True,
    ),
    Flag(
        "lora-modules", _adapter, "", "a LoRA adapter to serve beside the model; repeat it for several",
        "NAME[=PATH]", repeated=True,
    ),
    Flag(
        "kv-events-port",
        values.port,
        "kv_events_port",
        "publish KV events over ZeroMQ as vLLM does; the first server's port, the others follow (default: none are)",
        "PORT",
    ),
    Flag("kv-replay-port", values.port, "kv_replay_port", "where they can be asked for again, likewise", "PORT"),
    VERBOSITY,
)  # fmt: skip
