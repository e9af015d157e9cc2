"""Opens the tracer that the settings ask for. The libraries it needs are imported here, and only then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib.metadata import version

from epp.errors import ConfigError
from epp.runtime.logs import USERINFO
from epp.tracing.queue import TraceQueue
from epp.tracing.settings import Exporter, TraceSettings
from epp.tracing.tracer import Tracer

log = logging.getLogger(__name__)

MISSING = "traces need the extra otel: pip install '.[otel]' in a clone of Tierwise, or set --tracing=false"


def described(settings: TraceSettings) -> str:
    """Return a log line about where traces are sent, and how many of them."""
    where = "standard output"
    if settings.exporter is Exporter.OTLP:
        where = f"the collector at {USERINFO.sub('', settings.endpoint)}"
    sampler = settings.sampler
    parents = ", or as the caller decided" if sampler.by_parent else ""
    return f"traces are written to {where}, as service {settings.service_name}: {sampler.ratio:g} of them{parents}"


def open_tracer(
    settings: TraceSettings, *, clock: Callable[[], float] = time.monotonic
) -> tuple[Tracer, TraceQueue] | None:
    """Return a tracer and its queue, which must be stopped at the end.

    Returns None if only environment variables ask for traces and the library is missing. Raises: ConfigError if the
    flag asks for them and the library is missing.
    """
    try:
        from epp.tracing.exporters import open_sink
    except ModuleNotFoundError as error:
        if settings.demanded:
            raise ConfigError(MISSING) from error
        log.warning("%s", MISSING)
        return None
    log.info("%s", described(settings))
    queue = TraceQueue(open_sink(settings, version("tierwise")))
    return Tracer(settings.sampler, queue, clock=clock), queue
