"""The flags of ``tierwise check``, of which the others that read a configuration have some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from epp.config.options import CheckOptions
from epp.errors import ConfigError
from epp.flags import values
from epp.flags.arguments import Given, with_fields
from epp.flags.flag import Flag, grouped

_YES = values.boolean
CONFIG = (
    Flag(
        "config-file", values.path, "config.file", "EndpointPickerConfig to read; none uses the default profile", "FILE"
    ),
    Flag("config-text", values.text, "config.inline", "the same, written out; not together with --config-file", "YAML"),
    Flag("watch-config", _YES, "config.watch", "take changes of --config-file without a restart (default true)"),
)


CHECK: tuple[Flag, ...] = grouped(
    "Flags",
    replace(CONFIG[0], help="EndpointPickerConfig to check"),
    CONFIG[1],
    Flag("strict", _YES, "strict", "exit code 1 where there are warnings"),
)


def check_options(given: Given) -> CheckOptions:
    """The options of ``tierwise check``. Raises: ConfigError for two configurations."""
    given = dict(given)
    one_config(given)
    return with_fields(CheckOptions(), given, CHECK)


CONFIG_FILE = "TIERWISE_CONFIG_FILE"
"""The variable with the file of an image whose arguments name none."""


def config_of_environment(given: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Let the environment name the configuration where no flag of ``given`` does."""
    if environment.get(CONFIG_FILE) and not ({"config-file", "config-text"} & given.keys()):
        given["config-file"] = Path(environment[CONFIG_FILE])


def one_config(given: dict[str, Any]) -> None:
    """Take empty values out of ``given``. Raises: ConfigError for a file and a text."""
    if given.get("config-file") and given.get("config-text"):
        raise ConfigError("--config-file and --config-text exclude each other; give one of them")
    for name in ("config-file", "config-text"):
        if not given.get(name):
            given.pop(name, None)  # Go users write an empty value for "none"
