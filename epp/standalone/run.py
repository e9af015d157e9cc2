"""``tierwise standalone``: a proxy and a picker, which are started together, watched, and stopped together."""

from __future__ import annotations

import logging
import signal
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from epp.metrics.gauges import Reading, ReadingSource
from epp.pool.pool import Pool
from epp.ports.claim import claim_all
from epp.ports.resolve import resolve
from epp.runtime.signals import Stop
from epp.standalone.binary import find_envoy
from epp.standalone.leftovers import PREFIX, kept_from_tidying, remove_leftovers
from epp.standalone.options import StandaloneOptions

if TYPE_CHECKING:
    from epp.standalone.endpoints import EndpointsFile
    from epp.standalone.proxy import Proxy

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
CHATTY = 4
"""The verbosity from which Envoy's own log is shown."""


class RunningPicker(Protocol):
    """A picker that serves ext-proc and the access log on loopback."""

    @property
    def grpc_port(self) -> int:
        """The port on which the picker listens."""

    @property
    def pool(self) -> Pool:
        """The pool of its endpoints."""

    @property
    def changes_responses(self) -> bool:
        """Whether it may have something to change in any response."""

    def expose(self, source: ReadingSource) -> None:
        """Add the readings of ``source`` to the metrics."""

    def drain(self) -> None:
        """Report not ready from now on; requests are served as before."""

    async def stop(self, drain_timeout_s: float) -> None:
        """Let requests in progress end, for at most ``drain_timeout_s``, and close everything."""


StartPicker = Callable[[StandaloneOptions], Awaitable[RunningPicker]]


async def standalone(options: StandaloneOptions, start_picker: StartPicker, stop: Stop) -> None:
    """Serve until ``stop`` is set, then let requests in progress end.

    Raises: StartError or ConfigError with one sentence when a resource is unavailable; nothing is left running.
    """
    binary = find_envoy(options.envoy)
    (address,) = await resolve([f"{options.proxy.host}:{options.proxy.port}"])
    host = address.rpartition(":")[0].strip("[]")
    port, admin_port, *_ = claim_all(
        [
            (host, options.proxy.port, "--port"),
            (LOOPBACK, options.proxy.admin_port, "--admin-port"),
            (host, options.picker.metrics_port, "--metrics-port"),
            (LOOPBACK, options.picker.grpc_port, "--grpc-port"),
        ]
    )
    # Imported only now: its thousands of messages take longer to import than the rest of the start.
    from epp.standalone.endpoints import EndpointsFile
    from epp.standalone.proxy import Proxy

    remove_leftovers(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, kept_from_tidying(Path(name)):
        folder = Path(name)
        picker = await start_picker(options)
        accepting_s = 0.0
        try:
            endpoints = EndpointsFile(folder / "endpoints.json", [each.address for each in picker.pool.candidates()])
            picker.pool.listeners.append(endpoints)
            settings = replace(
                options.proxy,
                host=host,
                port=port,
                admin_port=admin_port,
                picker_port=picker.grpc_port,
                endpoints_file=folder / "endpoints.json",
                response_headers=picker.changes_responses,
            )
            proxy = Proxy(binary, settings, folder, verbose=options.log.verbosity >= CHATTY)
            try:
                await proxy.start()
                picker.expose(lambda: readings(proxy, endpoints))
                log.info("OpenAI requests are welcome at http://%s/v1", _as_client(host, port))
                log.info(
                    "Envoy's own pages are at http://%s:%d; its configuration is in %s", LOOPBACK, admin_port, folder
                )
                await stop.wait()
                picker.drain()
                if stop.signal is signal.SIGTERM:  # the sender also has to notify a load balancer
                    accepting_s = min(options.shutdown_delay_s, options.drain_timeout_s)
                    log.info("stopping: not ready from now on; connections are accepted for %g s more", accepting_s)
                log.info("stopping: requests under way have %g s to end", options.drain_timeout_s)
            finally:
                await proxy.stop(options.drain_timeout_s - accepting_s, accepting_s)
                await endpoints.close()
        finally:
            await picker.stop(options.drain_timeout_s)


def readings(proxy: Proxy, endpoints: EndpointsFile) -> list[Reading]:
    """Return the proxy's readings for the picker's metrics."""
    return [
        Reading(
            "tierwise_envoy_restarts",
            "Times Envoy was started again after it had ended by itself.",
            (),
            [((), proxy.statistics().restarts)],
            counter=True,
        ),
        Reading(
            "tierwise_endpoints_file_errors",
            "Times the endpoints could not be written for Envoy.",
            (),
            [((), endpoints.failures)],
            counter=True,
        ),
    ]


def _as_client(host: str, port: int) -> str:
    """Return the address that a client on this machine connects to."""
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{host}:{port}"
