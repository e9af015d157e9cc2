"""Values read from YAML files and standard input, and written as YAML."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from epp.errors import ConfigError

STDIN = "-"


def read_values(name: str) -> dict[str, object]:
    """Return the values of the file ``name``, or of standard input for ``-``. Raises: ConfigError."""
    try:
        text = sys.stdin.read() if name == STDIN else Path(name).read_text("utf-8")
        document = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{name}: this is no YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: values are a map of keys such as router or inferenceExtension, and this is none")
    return {str(key): value for key, value in document.items()}


def written(values: dict[str, object]) -> str:
    """Return ``values`` as YAML; text of several lines, such as a configuration, stays readable."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
