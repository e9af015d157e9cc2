"""Reads the settings from their sources. For each setting, the first source that sets it wins:

1. ``kv_connector_extra_config``: kvengine's names first, then LMCache's, which are ``lmcache.<name>`` there
2. the environment, ``KVENGINE_<NAME>``
3. the YAML file that ``KVENGINE_CONFIG_FILE`` names
4. LMCache's environment, ``LMCACHE_<NAME>``, then the YAML file that ``LMCACHE_CONFIG_FILE`` names

An empty variable sets nothing. An unknown name is an error in kvengine's sources. In LMCache's, which has many more
names, it causes a warning if it enables something that does not exist here. A refusal names a setting as its source
does.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kvengine.errors import SettingsError
from kvengine.settings.values import POLICY_NAMES, SIZES, Settings, allowed, check

OURS, THEIRS = "KVENGINE_", "LMCACHE_"
EXTRA = "kv_connector_extra_config: "
THEIRS_IN_EXTRA = "lmcache."
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
"""LMCache's names, and kvengine's names for the same settings."""
UNFULL = "save_unfull_chunk"
OF_THEIR_CONNECTOR = frozenset({"discard_partial_chunks", "skip_last_n_tokens", "lmcache_rpc_port", "use_native"})
"""Names that LMCache's connector reads from ``kv_connector_extra_config`` without a prefix."""
WITHOUT_MEANING = OF_THEIR_CONNECTOR - {"skip_last_n_tokens"} | {
    "use_experimental", "config_file", "use_layerwise", "log_level",
}  # fmt: skip
"""LMCache's names that are ignored without a warning, since they ask for nothing that is missing here."""
SERVICE_LINK = re.compile(
    r"(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d+|PORT(_\d+_(TCP|UDP|SCTP))?=\w+://.*"
    r"|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=.*)"
)
"""Variables that Kubernetes adds to every container's environment for a Service whose name begins with kvengine's
prefix. They are not settings."""
_FIELDS = Settings.__struct_fields__
_Found = dict[str, tuple[Any, str]]
"""For each of kvengine's names, its value and its name in the source."""
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def read_settings(
    extra: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings, and warnings about LMCache's settings that mean something else here or nothing.

    Raises: SettingsError naming the key, its value and what is allowed.
    """
    values: _Found = {}
    warnings: list[str] = []
    prefixed = {name: value for name, value in extra.items() if name.startswith(THEIRS_IN_EXTRA)}
    bare = {name: value for name, value in extra.items() if name in OF_THEIR_CONNECTOR}
    _add(values, _known({name: extra[name] for name in extra if name not in prefixed and name not in bare}, EXTRA))
    unprefixed = {name.removeprefix(THEIRS_IN_EXTRA): value for name, value in prefixed.items()}
    _add(values, _aliased(unprefixed, EXTRA + THEIRS_IN_EXTRA, warnings))
    _add(values, _aliased(bare, EXTRA, warnings))
    _add(values, _known(_variables(environment, OURS), OURS))
    if file := environment.get(OURS + FILE, "").strip():
        _add(values, _known(_file(Path(file)), f"{file}: "))
    _add(values, _aliased(_variables(environment, THEIRS), THEIRS, warnings))
    if file := environment.get(THEIRS + FILE, "").strip():
        _add(values, _aliased(_file(Path(file)), f"{file}: ", warnings))
    return _settings(values), tuple(warnings)


def _add(values: _Found, found: _Found) -> None:
    """Add the settings that no earlier source has set. The three sizes count as one setting."""
    sized = any(name in values for name in SIZES)
    for name, (value, written) in found.items():
        if value is not None and not (name in SIZES and sized):
            values.setdefault(name, (value, written))


def _variables(environment: Mapping[str, str], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix).lower(): value
        for name, value in environment.items()
        if name.startswith(prefix) and name != prefix + FILE and value.strip()
        if prefix != OURS or not SERVICE_LINK.fullmatch(f"{name.removeprefix(prefix)}={value}")
    }


def _written(name: str, where: str) -> str:
    return where + (name.upper() if where in (OURS, THEIRS) else name)


def _known(found: Mapping[str, Any], where: str) -> _Found:
    for name in found:
        if name not in _FIELDS:
            place, prefix = ("the environment: ", OURS) if where == OURS else (where, "")
            raise SettingsError(f"{place}there is no setting {_written(name, prefix)!r}; {_nearest(name, prefix)}")
    return {name: (value, _written(name, where)) for name, value in found.items()}


def _aliased(found: Mapping[str, Any], where: str, warnings: list[str]) -> _Found:
    known: _Found = {}
    for name, value in found.items():
        written = _written(name, where)
        if name in ALIASES:
            ours = ALIASES[name]
            if ours == "eviction_policy" and _says_something(value) and str(value).strip().lower() not in POLICY_NAMES:
                warnings.append(
                    f"{written}: there is no {value!r} here, only {', '.join(POLICY_NAMES)}; {POLICY_NAMES[0]} is used"
                )
                value = POLICY_NAMES[0]
            known.setdefault(ours, (value, written))
            if name == "use_local_cpu":
                warnings.append(f"{written}: read as local_cpu, which is what LMCache calls it")
        elif name == UNFULL and _says_something(value):
            warnings.append(
                f"{written}: only full chunks are stored here; a chunk_size as small as the engine's block size leaves "
                "less than a block of each prompt"
            )
        elif name not in WITHOUT_MEANING and _says_something(value):
            warnings.append(f"{written}: has no effect here; only {', '.join(ALIASES)} do")
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


def _settings(values: _Found) -> Settings:
    read = {name: _value(name, value, written) for name, (value, written) in values.items()}
    try:
        return msgspec.convert(read, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error).replace("`", "").replace("$.", "")) from error


def _value(name: str, value: Any, written: str) -> Any:
    """Convert ``value`` to the setting's type; text is parsed. Raises: SettingsError."""
    kind = Settings.__annotations__[name]
    text = str(value).strip()
    if kind == "bool":
        if text.lower() not in _TRUE + _FALSE:
            raise SettingsError(f"{written}: {value!r} is neither true nor false")
        return text.lower() in _TRUE
    if name == "eviction_policy":
        if text.lower() not in POLICY_NAMES:
            raise SettingsError(f"{written}: {value!r} is none of {', '.join(POLICY_NAMES)}")
        return text.lower()
    try:
        number = int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise SettingsError(f"{written}: {value!r} is not a number; write one {allowed(name)}") from None
    check(name, written, number)
    if "int" in kind and number != int(number):
        raise SettingsError(f"{written}: {value!r} is not a whole number; write one {allowed(name)}")
    return int(number) if "int" in kind else float(number)


def _nearest(name: str, prefix: str) -> str:
    close = difflib.get_close_matches(name.lower(), _FIELDS, n=1)
    if close or name in ALIASES:
        return f"did you mean {_written(ALIASES.get(name) or close[0], prefix)}?"
    return f"known: {', '.join(_written(field, prefix) for field in _FIELDS)}"
