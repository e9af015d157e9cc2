"""For how long a Service had no ready address, as its EndpointSlices tell every gateway."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from types import TracebackType
from typing import Any

from tests.cluster.control_plane import ADMIN, ControlPlane


class ReadyAddresses:
    """Watches the EndpointSlices of a Service of the namespace ``default``, from ``with`` to its end."""

    def __init__(self, plane: ControlPlane, service: str) -> None:
        self._plane = plane
        self._path = (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
            f"?labelSelector=kubernetes.io%2Fservice-name%3D{service}"
        )
        self._slices: dict[str, frozenset[str]] = {}
        self.seen: list[tuple[float, frozenset[str]]] = []
        """When, by the monotonic clock, which addresses were ready; the last one is the watch's end."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> ReadyAddresses:
        listed = self._plane.request("GET", self._path)
        self._slices = {one["metadata"]["name"]: _ready(one) for one in listed["items"]}
        self._note()
        trust = ssl.create_default_context(cafile=str(self._plane.authority))
        self._connection = http.client.HTTPSConnection(self._plane.address, self._plane.port, context=trust)
        path = f"{self._path}&watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN}"})
        self._socket: socket.socket = self._connection.sock
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    @property
    def longest_gap_s(self) -> float:
        """The longest time without a ready address. Raises: AssertionError if nothing has changed."""
        assert len(self.seen) > 2, "nothing has changed"
        gaps, since = [0.0], None
        for at, addresses in self.seen:
            if since is not None:
                gaps.append(at - since)
            if addresses:
                since = None
            elif since is None:
                since = at
        return max(gaps)

    def _follow(self) -> None:
        try:
            for line in self._response:
                event = json.loads(line)
                assert event["type"] != "ERROR", event
                ready = frozenset() if event["type"] == "DELETED" else _ready(event["object"])
                self._slices[event["object"]["metadata"]["name"]] = ready
                self._note()
        except (OSError, http.client.HTTPException):
            if not self._over.is_set():
                raise
        self._note()

    def _note(self) -> None:
        self.seen.append((time.monotonic(), frozenset[str]().union(*self._slices.values())))


def _ready(slice_: dict[str, Any]) -> frozenset[str]:
    return frozenset(
        address
        for endpoint in slice_.get("endpoints") or ()
        if endpoint["conditions"].get("ready")
        for address in endpoint["addresses"]
    )
