"""The options of ``tierwise simulate``, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from epp.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The policies, workloads and fleets to compare."""

    policies: tuple[str, ...] = ()
    """Names or files; empty runs all policies."""
    workloads: tuple[str, ...] = ("high-cache",)
    """Names or files of workloads."""
    endpoints: tuple[int, ...] = ()
    """Fleet sizes; empty is the size in the engine's published tables."""
    written_for: int | None = None
    """Endpoints that the load of a file is for; None runs a file as it is written."""
    engine: str | None = None
    """None is the engine of the workload's published tables."""
    gpu_tokens: int | None = None
    cpu_tokens: int | None = None
    """Capacity of a tier of each engine; None keeps the engine's own."""
    tells_tiers: bool = True
    """Whether engines report the state of their tiers."""
    pickers: int = 1
    """Pickers before each fleet, each with a record of only its own picks."""
    past_pickers: float = 0.0
    """The share of requests that no picker sees."""
    seeds: int = 3
    jobs: int = 1
    output: Path = Path("simulation")
    plots: bool = True

    @property
    def words(self) -> list[str]:
        """The flags, as on the command line, that define what is run; not those for output and parallelism."""
        words = []
        names = {field: flag for flag, field in _FIELDS.items()}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _NOT_RUN or value == field.default:
                continue
            if isinstance(value, tuple):
                value = ",".join(map(str, value))
            elif isinstance(value, bool):
                value = str(value).lower()
            words.append(f"--{names.get(field.name, field.name.replace('_', '-'))}={value}")
        return words


_NOT_RUN = frozenset({"jobs", "output", "plots"})
_FIELDS = {"policy": "policies", "workload": "workloads"}


def simulate_options(given: Mapping[str, Any]) -> SimulateOptions:
    """Return the options of ``tierwise simulate``. Raises: ConfigError for an empty list."""
    options: dict[str, Any] = {_FIELDS.get(name, name.replace("-", "_")): value for name, value in given.items()}
    for field in _FIELDS.values():
        if field in options:
            options[field] = tuple(dict.fromkeys(word for words in options[field] for word in words))
    for flag, field in _FIELDS.items():
        if field in options and not options[field]:
            raise ConfigError(f"--{flag}: names nothing; write a value, or leave it out")
    if "output" in options and options["output"] is None:
        raise ConfigError("--output: names nothing; write a folder, or leave it out")
    known = {field.name for field in fields(SimulateOptions)}
    return SimulateOptions(**{name: value for name, value in options.items() if name in known})
