"""The flags that several commands share."""

from __future__ import annotations

from epp.errors import ConfigError
from epp.flags import values
from epp.flags.arguments import Given
from epp.flags.flag import Flag

ENDPOINTS = Flag(
    "endpoint", values.endpoints, "endpoints", "an endpoint; repeat it, or separate several with commas",
    "HOST:PORT", repeated=True,
)  # fmt: skip


VERBOSITY = Flag(
    "v", values.integer(0, 99), "log.verbosity", "0 errors, 2 what an operator wants, 4 debugging (default 2)", "N"
)


def endpoints_of(given: Given) -> tuple[str, ...]:
    """Return all endpoints that were given. Raises: ConfigError for one given twice."""
    found = [endpoint for several in given.get("endpoint", ()) for endpoint in several]
    twice = sorted({endpoint for endpoint in found if found.count(endpoint) > 1})
    if twice:
        raise ConfigError(f"--endpoint={twice[0]} is given twice; an endpoint is one server")
    return tuple(found)
