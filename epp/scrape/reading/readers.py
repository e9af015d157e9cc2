"""Chooses the reader for an endpoint's page, and warns about unknown engines."""

from __future__ import annotations

import logging

from epp.pool.pool import Endpoint
from epp.scrape.reading.reader import EngineReader
from epp.scrape.reading.specs import EngineSpecs

log = logging.getLogger(__name__)

MAX_UNKNOWN = 100
"""Maximum number of unknown engine names that are logged, once each: labels are written by many people."""


class Readers:
    """One reader for each kind of engine. Owner: the event loop."""

    def __init__(self, engines: EngineSpecs) -> None:
        self._engines = engines
        self._by_name = {name: EngineReader(spec) for name, spec in engines.by_name.items()}
        self._default = EngineReader(engines.default)
        self._unknown: set[str] = set()

    def reader_of(self, endpoint: Endpoint) -> EngineReader:
        """Return the reader for the engine that the endpoint's labels name, or the default reader if it is unknown."""
        name = self._engines.named_by(endpoint.labels)
        reader = self._by_name.get(name)
        if reader is not None:
            return reader
        if name not in self._unknown and len(self._unknown) < MAX_UNKNOWN:
            self._unknown.add(name)
            log.warning(
                "endpoint %s: its label names the engine %.100r, which is not known, so it is read as %s, like others "
                "with that label; known: %s",
                endpoint.address, name, self._default.spec.name, ", ".join(sorted(self._by_name)),
            )  # fmt: skip
        return self._default
