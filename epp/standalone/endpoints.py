"""The file from which the proxy reads the endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
from envoy_data_plane.envoy.service.discovery.v3 import DiscoveryResponse
from envoy_data_plane.google.protobuf import Any

from epp.runtime.background import Chore
from epp.standalone.clusters import ENDPOINTS, assignment, member
from scorers.base import Candidate, Slot

log = logging.getLogger(__name__)

RETRY_S = 1.0
LOOK_EVERY_S = 10.0
"""How often the file's existence is checked: temporary folders get cleaned up, and the proxy restarts from it."""


def write_endpoints(path: Path, addresses: Sequence[str]) -> None:
    """Atomically replace the file at ``path`` by one that lists ``addresses`` (``ip:port``, IPv6 in brackets).

    Envoy reads a file that is renamed into place, so it never sees a partial one.
    """
    response = DiscoveryResponse(resources=[Any.pack(assignment(ENDPOINTS, []))]).to_dict()
    response["resources"][0]["endpoints"] = [{"lbEndpoints": [_member(address) for address in addresses]}]
    path.parent.mkdir(parents=True, exist_ok=True)  # a cleaner may have removed it
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_bytes(msgspec.json.encode(response))
    os.replace(unfinished, path)  # noqa: PTH105 - the usual name of the operation


@lru_cache(maxsize=4096)
def _member(address: str) -> dict[str, object]:
    """Return an endpoint in Envoy's JSON. Cached, since creating a message costs most of a millisecond."""
    host, _, port = address.rpartition(":")
    return member(host.strip("[]"), int(port)).to_dict()


class EndpointsFile:
    """Keeps the file equal to the pool; a ``PoolListener``. Owned by the event loop.

    Many changes in one step are one write, in a thread, so that requests can be decided meanwhile. Until the proxy has
    read about a new endpoint, requests for it go to the others by round robin.
    """

    def __init__(
        self, path: Path, addresses: Sequence[str], *, retry_s: float = RETRY_S, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        """Write the file with the endpoints that the pool has already."""
        self.failures = 0
        """How often the file could not be written."""
        self._path = path
        self._retry_s, self._look_every_s = retry_s, look_every_s
        self._addresses = dict.fromkeys(addresses)
        self._changed = asyncio.Event()
        write_endpoints(path, list(self._addresses))
        self._writer = Chore("write-endpoints", self._write_changes)

    def endpoint_added(self, candidate: Candidate) -> None:
        """Schedule a write that adds the endpoint."""
        self._addresses[candidate.address] = None
        self._changed.set()

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Schedule a write that removes the endpoint; the proxy lets its answers in progress finish."""
        self._addresses.pop(address, None)
        self._changed.set()

    def engine_reported(self, candidate: Candidate) -> None:
        """Ignore the report, since the proxy needs no engine metrics."""

    async def close(self) -> None:
        """Stop writing the file."""
        await self._writer.stop()

    async def _write_changes(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_every_s):
                    await self._changed.wait()
            if not self._changed.is_set() and self._path.exists():
                continue
            if not self._path.parent.exists():
                log.error(
                    "%s is gone; Envoy follows changes of endpoints again only after a restart", self._path.parent
                )
            self._changed.clear()
            try:
                await asyncio.to_thread(write_endpoints, self._path, list(self._addresses))
            except OSError as error:  # such as a full disk; until it works, the proxy has the previous endpoints
                self.failures += 1
                log.error("%s: %s; trying again in %g s", self._path, error.strerror or error, self._retry_s)  # noqa: TRY400
                await asyncio.sleep(self._retry_s)
                self._changed.set()
            except Exception:
                self._changed.set()  # the chore restarts, with this change still to write
                raise
