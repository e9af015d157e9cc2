"""The load that a workload puts on a fleet of some size, and its description in words."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from epp.errors import ConfigError
from epp.lab.fleet.engines import of_workload
from epp.lab.fleet.lengths import Distribution
from epp.lab.fleet.workload import PRESETS, Config, DataType, LoadType, SharedPrefix, choose, scaled
from epp.runtime.logs import counted


class FleetLoad(NamedTuple):
    """The workload as it is run."""

    config: Config
    written_for: int | None
    """The number of endpoints that the workload was written for; None where it is run as it is written."""


def load_for(name: str, endpoints: int, written_for: int | None = None) -> FleetLoad:
    """Return the load that the workload called ``name`` puts on a fleet of ``endpoints``.

    A preset is written for the fleet of its published tables, and is scaled so that each endpoint of another fleet gets
    the same share. A file is run as it is written, unless ``written_for`` gives a number of endpoints; then it is
    scaled like a preset.
    Raises: ConfigError that names the file and the key, or the flag for a trace, which cannot be scaled.
    """
    config = choose(name)
    if written_for is not None and config.data.type is DataType.RANDOM:
        raise ConfigError(f"--written-for={written_for}: {name} is a trace, and a trace is not scaled; leave it out")
    meant_for = written_for or (of_workload(name).endpoints if name in PRESETS else endpoints)
    if meant_for == endpoints:
        return FleetLoad(config, None)
    return FleetLoad(scaled(config, endpoints / meant_for), meant_for)


def in_words(load: FleetLoad, requests: int, endpoints: int) -> str:
    """Describe the load of one run, and its scaling: ``450 requests, 45 at a time; 45 groups of 10 prompts, ...``."""
    words = f"{counted(requests, 'request')}{_when(load.config)}{_what(load.config)}"
    if load.written_for is None:
        return words
    return f"{words} (written for {load.written_for:,} endpoints, and scaled to {endpoints:,})"


def _when(config: Config) -> str:
    load = config.load
    if load.type is LoadType.TRACE_REPLAY:
        return ""
    stages = f" in {len(load.stages)} stages" if len(load.stages) > 1 else ""
    if load.type is LoadType.CONCURRENT:
        what = "conversations at a time" if config.data.conversation_replay is not None else "at a time"
        return f"{stages}, {_range([stage.concurrency_level or 0 for stage in load.stages])} {what}"
    return f"{stages}, {_range([stage.rate or 0.0 for stage in load.stages])} requests/s"


def _what(config: Config) -> str:
    data = config.data
    if data.trace is not None and config.load.type is LoadType.TRACE_REPLAY:
        return f" of {Path(data.trace.file).name}, at its times"
    if data.conversation_replay is not None:
        return f"; {data.conversation_replay.num_conversations:,} different conversations"
    shared = data.shared_prefix or SharedPrefix()
    return (
        f"; {shared.groups:,} groups of {shared.prompts:,} prompts, {_tokens(shared.system_prompt_len)} tokens shared, "
        f"{_tokens(shared.question_len)} of their own, {_tokens(shared.output_len)} to answer"
    )


def _range(values: list[float] | list[int]) -> str:
    least, most = min(values), max(values)
    return f"{least:,.6g}" if least == most else f"{least:,.6g} to {most:,.6g}"


def _tokens(length: int | Distribution) -> str:
    return f"{length:,}" if isinstance(length, int) else f"about {length.mean:,.0f}"
