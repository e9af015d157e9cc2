"""A tracer as it was asked for; what it needs is imported here, where it is asked for."""

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
    """Where traces go and how many, in words for the log."""
    where = "standard output"
    if settings.exporter is Exporter.OTLP:
        where = f"the collector at {USERINFO.sub('', settings.endpoint)}"
    sampler = settings.sampler
    parents = ", or as the caller decided" if sampler.by_parent else ""
    return f"traces are written to {where}, as service {settings.service_name}: {sampler.ratio:g} of them{parents}"


def open_tracer(
    settings: TraceSettings, *, clock: Callable[[], float] = time.monotonic
) -> tuple[Tracer, TraceQueue] | None:
    """A tracer and its queue, which is to be stopped; None where variables ask for traces that cannot be written.

    Raises: ConfigError when the flag asks for them and the library is not there.
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
