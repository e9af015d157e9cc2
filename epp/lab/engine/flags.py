"""The flags of ``tierwise sim``."""

from __future__ import annotations

from epp.errors import ConfigError
from epp.flags import values
from epp.flags.arguments import Given, with_fields
from epp.flags.common import VERBOSITY
from epp.flags.flag import Flag, grouped
from epp.lab.engine.options import SimOptions


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


def sim_options(given: Given) -> SimOptions:
    """The options of ``tierwise sim``. Raises: ConfigError when the ports do not exist."""
    names, adapters = given.get("served-model-name", ()), given.get("lora-modules", ())
    options = with_fields(SimOptions(served_model_names=names, adapters=adapters), given, SIM)
    ports = {"port": options.port, "kv-events-port": options.kv_events_port, "kv-replay-port": options.kv_replay_port}
    for name, port in ports.items():
        last = (port or 0) + options.endpoints - 1
        if port and last > 65535:
            raise ConfigError(f"--{name}={port} with --endpoints={options.endpoints} ends at port {last}, beyond 65535")
    if options.kv_replay_port is not None and options.kv_events_port is None:
        raise ConfigError("--kv-replay-port: there are no events without --kv-events-port; write both")
    return options
