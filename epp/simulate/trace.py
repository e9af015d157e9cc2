"""Traces in Mooncake's format: one JSON object a line.

``timestamp``: milliseconds since the first request; ``input_length``, ``output_length``: tokens; ``hash_ids``: one
number for each 512 tokens of the prompt, the last of them perhaps not full, equal only where everything before is, too.
Source: kvcache-ai/Mooncake, ``FAST25-release/traces``; AIPerf and GuideLLM read the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from epp.errors import ConfigError
from epp.simulate.arrivals import Arriving, Timed
from epp.simulate.lengths import MOST_TOKENS
from epp.simulate.prompts import Ask, Part

BLOCK_TOKENS = 512
FORMATS = ("MooncakeTrace",)
_UNIQUE = 1 << 32
"""Contents that only one request has: above all hash ids."""


class Line(msgspec.Struct, frozen=True):
    """One request. Other keys, as some traces have, say nothing of caches."""

    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    input_length: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]
    output_length: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)] = 1
    hash_ids: list[Annotated[int, msgspec.Meta(ge=0, lt=_UNIQUE)]] = []


def read(path: Path, format_name: str = FORMATS[0]) -> Timed:
    """The requests of the trace at their times. Raises: ConfigError naming file and line."""
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
    """The request of a line; what its hash ids do not name is its own."""
    parts, left = [], line.input_length
    for hash_id in line.hash_ids:
        if left <= 0:
            break
        parts.append(Part(hash_id, min(BLOCK_TOKENS, left)))
        left -= BLOCK_TOKENS
    if left > 0:
        parts.append(Part(_UNIQUE + number, left))
    return Ask(tuple(parts), max(1, line.output_length))


def _lines(path: Path, file: Iterator[bytes]) -> Iterator[tuple[int, Line]]:
    decoder = msgspec.json.Decoder(Line)
    for n, raw in enumerate(file, 1):
        if raw.strip():
            try:
                yield n, decoder.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path}: line {n}: {error}") from error
