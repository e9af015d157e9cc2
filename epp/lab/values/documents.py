"""Values read from YAML files and standard input, and written as YAML."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from epp.errors import ConfigError

STDIN = "-"


def read_values(name: str) -> tuple[dict[str, object], list[str]]:
    """Return the values of the file ``name``, or of standard input for ``-``, and a sentence for each key given twice.

    Raises: ConfigError for a file that cannot be read.
    """
    repeated: list[str] = []
    try:
        text = sys.stdin.read() if name == STDIN else Path(name).read_text("utf-8")
        document = _Loader(text, name, repeated).get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{name}: this is no YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}, repeated
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: values are a map of keys such as router or inferenceExtension, and this is none")
    return {str(key): value for key, value in document.items()}, repeated


def written(values: dict[str, object]) -> str:
    """Return ``values`` as YAML; text of several lines, such as a configuration, stays readable."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Loader(yaml.SafeLoader):
    """Reads YAML as helm does, which takes the last of several equal keys and says nothing."""

    def __init__(self, stream: str, name: str, repeated: list[str]) -> None:
        super().__init__(stream)
        self._name, self._repeated = name, repeated

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                self._repeated.append(
                    f"{self._name}, line {key.start_mark.line + 1}: {key.value} is there a second time in the same "
                    "map; only the last one counts"
                )
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
