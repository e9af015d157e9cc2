"""The file from which the proxy learns the endpoints."""

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
"""How often the file is looked for: temporary folders are tidied up, and the proxy restarts from it."""


def write_endpoints(path: Path, addresses: Sequence[str]) -> None:
    """Replace the file at ``path`` by one that lists ``addresses`` (``ip:port``, IPv6 in brackets), at once.

    Envoy takes a file that is renamed into place; it never sees half of one.
    """
    response = DiscoveryResponse(resources=[Any.pack(assignment(ENDPOINTS, []))]).to_dict()
    response["resources"][0]["endpoints"] = [{"lbEndpoints": [_member(address) for address in addresses]}]
    path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have tidied up
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_bytes(msgspec.json.encode(response))
    os.replace(unfinished, path)  # noqa: PTH105 - the word for it


@lru_cache(maxsize=4096)
def _member(address: str) -> dict[str, object]:
    """In Envoy's JSON. Kept, because making a message costs most of a millisecond."""
    host, _, port = address.rpartition(":")
    return member(host.strip("[]"), int(port)).to_dict()


class EndpointsFile:
    """Keeps the file as the pool is; a ``PoolListener``. Owned by the event loop.

    Many changes in one step are one write, in a thread: requests are decided meanwhile. Until the proxy has read of an
    endpoint, requests for it go to the others in turn.
    """

    def __init__(
        self, path: Path, addresses: Sequence[str], *, retry_s: float = RETRY_S, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        """Write the file with the endpoints that the pool has already."""
        self.failures = 0
        """Times the file could not be written."""
        self._path = path
        self._retry_s, self._look_every_s = retry_s, look_every_s
        self._addresses = dict.fromkeys(addresses)
        self._changed = asyncio.Event()
        write_endpoints(path, list(self._addresses))
        self._writer = Chore("write-endpoints", self._write_changes)

    def endpoint_added(self, candidate: Candidate) -> None:
        """Let the proxy know of it."""
        self._addresses[candidate.address] = None
        self._changed.set()

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Let the proxy forget it; what it still answers is let finish."""
        self._addresses.pop(address, None)
        self._changed.set()

    def engine_reported(self, candidate: Candidate) -> None:
        """Nothing that the proxy would know."""

    async def close(self) -> None:
        """Write no more."""
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
            except OSError as error:  # a full disk, perhaps; until then the proxy knows the endpoints as they were
                self.failures += 1
                log.error("%s: %s; trying again in %g s", self._path, error.strerror or error, self._retry_s)  # noqa: TRY400
                await asyncio.sleep(self._retry_s)
                self._changed.set()
            except Exception:
                self._changed.set()  # the chore begins again, with what was to be written
                raise
