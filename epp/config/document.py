"""The text of a configuration as plain data, refused if its author cannot have meant it.

The text is YAML, or JSON, which is a part of it. Aliases are allowed, but what they expand to is bounded, since a page
of nested aliases can stand for billions of values. A key written twice is an error, since parsers differ in which of
the two they take.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from epp.errors import ConfigError

MAX_BYTES = 1 << 20
MAX_VALUES = 50_000
"""After expansion of aliases. Source: guess; a config with 1,000 plugins has about 10,000."""
MAX_DEPTH = 50
"""Levels of nesting. Source: guess; the schema needs 8."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader if the wheel includes it: 10 times faster


def parse(raw: bytes, begins: str = "apiVersion and kind", *, most_values: int = MAX_VALUES) -> dict[str, object]:
    """Return the mapping in ``raw``. ``begins`` names its first keys, for an error.

    Raises: ConfigError that names the line, the key path or the limit.
    """
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{len(raw):,} bytes; a configuration has at most {MAX_BYTES:,}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"byte {error.start} is not UTF-8; save the file as UTF-8") from error
    data = _load(text, most_values)
    if not isinstance(data, dict):
        kind = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"holds {kind}; it must be a mapping that starts with {begins}")
    return data


def _load(text: str, most_values: int) -> object:
    loader = None
    try:
        _check_depth(text)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node, most_values)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {_one_line(error)}") from error
    except (ValueError, OverflowError) as error:  # a scalar that looks like a number or date and is not valid
        raise ConfigError(f"a value is no number or date, though it looks like one: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _check_depth(text: str) -> None:
    """Bound the nesting by the flat event stream: the C composer recurses without a limit of its own and crashes."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise ConfigError(f"line {line}: nested deeper than {MAX_DEPTH} levels")


def _check(root: yaml.Node, most_values: int) -> None:
    """Bound the size of the tree under ``root`` with aliases expanded, and refuse keys that are written twice."""
    sizes: dict[int, int] = {}  # values under a node, aliases expanded
    open_nodes: set[int] = set()

    def size(node: yaml.Node, path: str) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in open_nodes:
            raise ConfigError(f"{path or 'top level'}: an alias refers to what contains it")
        open_nodes.add(id(node))
        total = 1 + sum(size(child, where) for child, where in _children(node, path))
        open_nodes.remove(id(node))
        if total > most_values:
            raise ConfigError(f"{path or 'top level'}: more than {most_values:,} values, aliases expanded")
        sizes[id(node)] = total
        return total

    size(root, "")


def _children(node: yaml.Node, path: str) -> Iterator[tuple[yaml.Node, str]]:
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield child, f"{path}[{index}]"
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"line {key.start_mark.line + 1}: a key must be text")
            where = f"{path}.{key.value}" if path else str(key.value)
            line = key.start_mark.line + 1
            if key.value in lines:
                raise ConfigError(f"{where}: written twice, on lines {lines[key.value]} and {line}; keep one")
            lines[key.value] = line
            yield child, where
