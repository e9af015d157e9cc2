"""The files with the result: the configuration, the same as values of a chart, and everything that was tried."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from epp.errors import ConfigError
from epp.lab.fleet.engines import EngineKind
from epp.lab.fleet.policies import CONFIG_BLOCK_TOKENS, Policy
from epp.lab.interruption import uninterrupted

CONFIG, VALUES, OLDER_VALUES, TRIED = "picker.yaml", "values.yaml", "values-inferencepool.yaml", "tuning.json"
MADE_BY = "Made by tierwise tune"
"""Marks the first line of each written file."""
_WHAT_CAPACITY = "CPU_BLOCKS"


def configuration(policy: Policy, engine: EngineKind, origin: str) -> str:
    """Return ``policy`` as a file to serve with; ``origin`` describes how it was found."""
    blocks = max(1, engine.cpu_tokens // CONFIG_BLOCK_TOKENS)
    head = "".join(f"# {line}\n" for line in origin.splitlines())
    if _WHAT_CAPACITY in policy.config:
        head += (
            f"# lruCapacityPerServer: {blocks:,} blocks of {CONFIG_BLOCK_TOKENS} tokens, what the simulated engines' "
            f"CPU "
            "tier holds.\n# Write what yours holds (tierwise size), or leave it out where endpoints say it "
            "themselves.\n"
        )
    return head + policy.config.replace(_WHAT_CAPACITY, str(blocks))


def values(config: str, *, older: bool = False) -> str:
    """Return ``config`` as values of the llm-d router's charts; ``older`` is for the previous inferencepool chart."""
    inner = "".join(f"      {line}\n" if line else "\n" for line in config.splitlines())
    if older:
        keys = "inferenceExtension:\n  pluginsConfigFile: tuned.yaml\n  pluginsCustomConfig:\n    tuned.yaml: |\n"
        return keys + inner
    keys = "router:\n  epp:\n    pluginsConfigFile: tuned.yaml\n    pluginsCustomConfig:\n      tuned.yaml: |\n"
    return keys + "".join(f"  {line}\n" if line else "\n" for line in inner.splitlines())


def earlier_in(folder: Path) -> bool:
    """Return whether an earlier result is in ``folder``.

    Raises: ConfigError where it cannot be read, or has a file of that name that is not from this command.
    """
    try:
        there = [path for name in (CONFIG, VALUES, OLDER_VALUES) if (path := folder / name).exists()]
        foreign = [path.name for path in there if MADE_BY.encode() not in path.read_bytes()]
    except OSError as error:
        raise ConfigError(f"--output={folder}: cannot be read: {error.strerror}") from error
    if foreign:
        raise ConfigError(f"--output={folder}: {foreign[0]} there is none of tierwise tune's; name another folder")
    return bool(there)


def write(folder: Path, config: str, tried: object) -> None:
    """Write all files into an existing folder; no signal interrupts their replacement.

    Raises: ConfigError where they cannot be written; none of them is replaced then.
    """
    texts = {CONFIG: config, VALUES: values(config), OLDER_VALUES: values(config, older=True)}
    texts[TRIED] = msgspec.json.format(msgspec.json.encode(tried)).decode() + "\n"
    try:
        with TemporaryDirectory(prefix=".new-", dir=folder) as made:
            for name, text in texts.items():
                (Path(made) / name).write_text(text)
            with uninterrupted():
                for name in texts:  # a picker may follow the file, and must not read half of it
                    (Path(made) / name).replace(folder / name)
    except OSError as error:
        raise ConfigError(f"--output={folder}: cannot be written: {error.strerror}") from error
