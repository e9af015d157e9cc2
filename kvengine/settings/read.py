"""Where settings are written, the first that says something winning:

1. ``kv_connector_extra_config``
2. the environment, ``KVENGINE_<NAME>``
3. the YAML file that ``KVENGINE_CONFIG_FILE`` names
4. LMCache's environment, ``LMCACHE_<NAME>``, then the YAML file that ``LMCACHE_CONFIG_FILE`` names

An unknown name is an error in ours and a warning in LMCache's, which has many more: those that ask for what does not
exist here are named.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kvengine.errors import SettingsError
from kvengine.settings.values import SIZES, Settings

OURS, THEIRS = "KVENGINE_", "LMCACHE_"
FILE = "CONFIG_FILE"
MAX_FILE_BYTES = 1 << 20
ALIASES = {
    "chunk_size": "chunk_size",
    "local_cpu": "local_cpu",
    "use_local_cpu": "local_cpu",
    "max_local_cpu_size": "max_local_cpu_size",
    "cache_policy": "eviction_policy",
    "save_decode_cache": "store_decode",
}
"""LMCache's names, and ours."""
UNFULL = "save_unfull_chunk"
WITHOUT_MEANING = frozenset({"use_experimental", "config_file", "use_layerwise", "log_level"})
"""LMCache's names that ask for nothing that would be missed here."""
_FIELDS = Settings.__struct_fields__
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def read_settings(
    extra: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> tuple[Settings, tuple[str, ...]]:
    """The settings, and warnings. Raises: SettingsError naming the key, its value, and what is allowed."""
    values: dict[str, Any] = {}
    warnings: list[str] = []
    _add(values, _known(extra, "kv_connector_extra_config"))
    _add(values, _known(_variables(environment, OURS), "the environment"))
    if file := environment.get(OURS + FILE):
        _add(values, _known(_file(Path(file)), file))
    theirs = _variables(environment, THEIRS)
    _add(values, _aliased(theirs, THEIRS, warnings))
    if file := environment.get(THEIRS + FILE):
        _add(values, _aliased(_file(Path(file)), f"{file}: ", warnings))
    return _settings(values), tuple(warnings)


def _add(values: dict[str, Any], found: Mapping[str, Any]) -> None:
    """Take over what nobody has said before. The sizes are one question."""
    sized = any(name in values for name in SIZES)
    for name, value in found.items():
        if not (name in SIZES and sized):
            values.setdefault(name, value)


def _variables(environment: Mapping[str, str], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix).lower(): value
        for name, value in environment.items()
        if name.startswith(prefix) and name != prefix + FILE
    }


def _known(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    for name in found:
        if name not in _FIELDS:
            raise SettingsError(f"{where}: there is no setting {name!r}; {_nearest(name, _FIELDS)}")
    return dict(found)


def _aliased(found: Mapping[str, Any], where: str, warnings: list[str]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name, value in found.items():
        shown = where + (name.upper() if where == THEIRS else name)
        if name in ALIASES:
            known.setdefault(ALIASES[name], value)
            if name == "use_local_cpu":
                warnings.append(f"{shown}: read as local_cpu, which is what LMCache calls it")
        elif name == UNFULL and _says_something(value):
            warnings.append(
                f"{shown}: only full chunks are stored here; a chunk_size as small as the engine's block size leaves "
                "less than a block of each prompt"
            )
        elif name not in WITHOUT_MEANING and _says_something(value):
            warnings.append(f"{shown}: has no effect here; only {', '.join(ALIASES)} do")
    return known


def _says_something(value: Any) -> bool:
    return value not in (None, "", False) and str(value).lower() not in ("false", "none", "null")


def _file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise SettingsError(f"{path}: larger than {MAX_FILE_BYTES:,} bytes")
    try:
        data = yaml.safe_load(raw)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise SettingsError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if data is None:
        return {}
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise SettingsError(f"{path}: holds a {type(data).__name__}; it must be a mapping of names to values")
    return data


def _settings(values: Mapping[str, Any]) -> Settings:
    read = {name: _value(name, value) for name, value in values.items() if value is not None}
    try:
        return msgspec.convert(read, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error).replace("`", "").replace("$.", "")) from error


def _value(name: str, value: Any) -> Any:
    """Text from the environment as what the setting takes. Raises: SettingsError."""
    kind = Settings.__annotations__[name]
    if kind == "bool":
        text = str(value).strip().lower()
        if text not in _TRUE + _FALSE:
            raise SettingsError(f"{name}: {value!r} is neither true nor false")
        return text in _TRUE
    if "Literal" in kind:
        choices = [part.strip(" '\"]") for part in kind.partition("[")[2].split(",")]
        text = str(value).strip().lower()
        if text not in choices:
            raise SettingsError(f"{name}: {value!r} is none of {', '.join(choices)}")
        return text
    try:
        number = float(str(value).strip())
    except ValueError:
        raise SettingsError(f"{name}: {value!r} is not a number") from None
    if "int" in kind:
        if not number.is_integer():
            raise SettingsError(f"{name}: {value!r} is not a whole number")
        return int(str(value).strip()) if str(value).strip().lstrip("+-").isdigit() else int(number)
    return number


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
