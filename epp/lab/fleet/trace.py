"""Traces in Mooncake's format: one JSON object per line.

``timestamp``: milliseconds since the first request; ``input_length``, ``output_length``: tokens; ``hash_ids``: one
number for each 512 tokens of the prompt, the last of which may be partial. Two numbers are equal only where everything
before them is equal, too.
Source: kvcache-ai/Mooncake, ``FAST25-release/traces``; AIPerf and GuideLLM read the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import msgspec

from epp.errors import ConfigError
from epp.lab.fleet.arrivals import Arriving, Timed
from epp.lab.fleet.lengths import MOST_TOKENS
from epp.lab.fleet.prompts import Ask, PromptPart

BLOCK_TOKENS = 512
MOST_SHOWN = 60
"""Characters of a value that an error repeats."""
FORMATS = ("MooncakeTrace",)
MOST_MS = 10**12
_UNIQUE = 1 << 32
"""Contents that only one request has are numbered from here, above all hash ids."""


class Line(msgspec.Struct, frozen=True):
    """One request of a trace. Other keys, which some traces have, do not concern caches."""

    timestamp: Annotated[float, msgspec.Meta(ge=0, le=MOST_MS)]
    input_length: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]
    output_length: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
    hash_ids: list[Annotated[int, msgspec.Meta(ge=0, lt=_UNIQUE)]] | msgspec.UnsetType = msgspec.UNSET
    """Left out where the prompt has nothing in common with another one."""


_RIGHT = {
    "timestamp": f"a number of milliseconds from 0 to {MOST_MS:,}",
    "input_length": f"a whole number of tokens from 1 to {MOST_TOKENS:,}",
    "output_length": f"a whole number of tokens from 0 to {MOST_TOKENS:,}",
    "hash_ids": f"a list of whole numbers from 0 to {_UNIQUE - 1:,}",
}
"""The valid values of each key, for errors."""


def read(path: Path, format_name: str = FORMATS[0]) -> Timed:
    """Return the requests of the trace at their times. Raises: ConfigError that names file and line."""
    if format_name not in FORMATS:
        raise ConfigError(f"data.trace.format: {format_name!r} is none of {', '.join(FORMATS)}")
    try:
        with path.open("rb") as file:
            arrivals = [Arriving(line.timestamp / 1000, ask_of(line, n)) for n, line in _lines(path, file)]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if not arrivals:
        raise ConfigError(f"{path}: holds no request; each line is one JSON object")
    arrivals.sort(key=lambda arriving: arriving.delay_s)
    begin = arrivals[0].delay_s
    return Timed([Arriving(arriving.delay_s - begin, arriving.ask) for arriving in arrivals])


def ask_of(line: Line, number: int) -> Ask:
    """Return the request of a line; tokens beyond its hash ids are unique to it."""
    parts, left = [], line.input_length
    for hash_id in line.hash_ids or ():
        parts.append(PromptPart(hash_id, min(BLOCK_TOKENS, left)))
        left -= BLOCK_TOKENS
    if left > 0:
        parts.append(PromptPart(_UNIQUE + number, left))
    return Ask(tuple(parts), max(1, line.output_length))


def _lines(path: Path, file: Iterator[bytes]) -> Iterator[tuple[int, Line]]:
    decoder = msgspec.json.Decoder(Line)
    for n, raw in enumerate(file, 1):
        if not raw.strip():
            continue
        try:
            yield n, _line(decoder, raw)
        except ValueError as error:
            raise ConfigError(f"{path}: line {n}: {error}") from error


def _line(decoder: msgspec.json.Decoder[Line], raw: bytes) -> Line:
    """Decode a line. Raises: ValueError that describes the fault."""
    try:
        line = decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError(_faults_in(msgspec.json.decode(raw))) from error
    if fault := _fault_of(line, raw):
        raise ValueError(fault)
    return line


def _fault_of(line: Line, raw: bytes) -> str:
    """Describe what is wrong with valid numbers as hash ids; empty if nothing is."""
    if line.hash_ids is msgspec.UNSET:
        near = _near("hash_ids", msgspec.json.decode(raw))
        return f"{near} is not known; is hash_ids meant?" if near else ""
    wanted = -(-line.input_length // BLOCK_TOKENS)
    if len(line.hash_ids) == wanted:
        return ""
    return (
        f"hash_ids: {len(line.hash_ids)} of them, and input_length {line.input_length:,} takes {wanted}, one for each "
        f"{BLOCK_TOKENS} tokens; leave the key out where the prompt has nothing in common with another"
    )


def _faults_in(data: object) -> str:
    """Describe every key that is missing or has a wrong value, with what is right."""
    if not isinstance(data, dict):
        return f"{_shortened(data)} is no JSON object"
    faults = []
    for field in msgspec.structs.fields(Line):
        key, right = field.name, _RIGHT[field.name]
        if key in data:
            try:
                msgspec.convert(data[key], field.type)
            except msgspec.ValidationError:
                faults.append(f"{key}: {_shortened(data[key])} is not {right}")
        elif field.required:
            near = _near(key, data)
            faults.append(f"{key} is missing ({right}{f'; is {near} meant?' if near else ''})")
    return "; ".join(faults)


def _near(key: str, data: Mapping[str, object]) -> str:
    """Return the key of ``data`` that is probably a misspelling of ``key``; empty if there is none."""
    others = {name.lower(): name for name in data if name not in _RIGHT}
    return next((others[name] for name in get_close_matches(key, others, n=1, cutoff=0.7)), "")


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
