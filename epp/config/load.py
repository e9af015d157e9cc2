"""Reads a configuration from a file or from a flag."""

from __future__ import annotations

from pathlib import Path

import msgspec

from epp.config.document import MAX_BYTES, parse
from epp.config.schema import API_VERSIONS, KIND, Config
from epp.config.strict import convert, nearest
from epp.errors import ConfigError
from epp.flowcontrol.detectors import UtilizationDetector, UtilizationParameters


def load_file(path: Path) -> Config:
    """Read and check ``path``. Raises: ConfigError that names the file and the offending key."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return _load(raw, str(path))


def load_text(text: str) -> Config:
    """Read and check the value of ``--config-text``. Raises: ConfigError that names the offending key."""
    return _load(text.encode(errors="surrogatepass"), "--config-text")


def _load(raw: bytes, source: str) -> Config:
    try:
        data = parse(raw)
        _check_header(data)
        _check_detector(data)
        return convert(data, Config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _check_header(data: dict[str, object]) -> None:
    """Check first that this is our kind of document at all: otherwise every later error would mislead."""
    for key, allowed in (("apiVersion", API_VERSIONS), ("kind", (KIND,))):
        value = data.get(key)
        if value is None:
            raise ConfigError(f"{key}: missing; write {key}: {allowed[0]}")
        if value not in allowed:
            raise ConfigError(f"{key}: unknown value {value!r}{nearest(str(value), allowed)}")


def _check_detector(data: dict[str, object]) -> None:
    """Refuse inline parameters of a saturation detector, an older form, and name their new place."""
    flow = data.get("flowControl")
    places = (
        ("saturationDetector", data.get("saturationDetector")),
        ("flowControl.saturationDetector", flow.get("saturationDetector") if isinstance(flow, dict) else None),
    )
    known = {field.encode_name for field in msgspec.structs.fields(UtilizationParameters)}
    for path, written in places:
        parameters = {key: written[key] for key in written if key in known} if isinstance(written, dict) else {}
        if parameters:
            listed = ", ".join(f"{key}: {value}" for key, value in parameters.items())
            kind = UtilizationDetector.type_name
            declaration = f"{{type: {kind}, parameters: {{{listed}}}}}"
            raise ConfigError(
                f"{path}.{next(iter(parameters))}: belongs to a plugin; write {declaration} into plugins, "
                f"and flowControl.saturationDetector: {{pluginRef: {kind}}}"
            )
