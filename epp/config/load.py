"""Read a configuration, from a file or from a flag."""

from __future__ import annotations

from pathlib import Path

from epp.config.document import MAX_BYTES, parse
from epp.config.schema import API_VERSIONS, KIND, Config
from epp.config.strict import convert, nearest
from epp.errors import ConfigError


def load_file(path: Path) -> Config:
    """Read and check ``path``. Raises: ConfigError naming the file and the offending key."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return _load(raw, str(path))


def load_text(text: str) -> Config:
    """Read and check the value of ``--config-text``. Raises: ConfigError naming the offending key."""
    return _load(text.encode(errors="surrogatepass"), "--config-text")


def _load(raw: bytes, source: str) -> Config:
    try:
        data = parse(raw)
        _check_header(data)
        return convert(data, Config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _check_header(data: dict[str, object]) -> None:
    """Say first whether this is our kind of document at all: every later complaint would mislead."""
    for key, allowed in (("apiVersion", API_VERSIONS), ("kind", (KIND,))):
        value = data.get(key)
        if value is None:
            raise ConfigError(f"{key}: missing; write {key}: {allowed[0]}")
        if value not in allowed:
            raise ConfigError(f"{key}: unknown value {value!r}{nearest(str(value), allowed)}")
