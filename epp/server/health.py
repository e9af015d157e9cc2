"""gRPC health checking, for probes and proxies, on any port.

Source: grpc.health.v1. As in the Go picker every service name is known, since charts ask for several, and the answers
to all are the same; ``Watch`` is not offered.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError
from typing_extensions import override

from epp.pb.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListResponse
from epp.wire.service import Call, Handler, Methods, Status

SERVICE = "/grpc.health.v1.Health/"
LISTED = ("", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension")
"""Names that ``List`` shows; ``Check`` takes any."""
MAX_NAME_BYTES = 1024
"""The largest request that is read. A guess."""


class Health:
    """The health service: serving while ``ready`` returns True and ``drain`` was not called. Owner: the event loop."""

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._ready = ready
        self._draining = False

    @property
    def serving(self) -> bool:
        """Whether new requests should be sent here."""
        return not self._draining and self._ready()

    def drain(self) -> None:
        """Answer that the picker is not serving, from now on."""
        self._draining = True

    def methods(self) -> Methods:
        """Return the methods that a transport hosts."""
        return {
            f"{SERVICE}Check": lambda call: _Unary(call, self.check),
            f"{SERVICE}List": lambda call: _Unary(call, self.list),
        }

    def check(self, request: bytes) -> bytes:
        """Return the answer to ``Check``. Raises: DecodeError."""
        HealthCheckRequest.FromString(request)
        return self._status().SerializeToString()

    def list(self, _: bytes) -> bytes:
        """Return the answer to ``List``."""
        response = HealthListResponse()
        for name in LISTED:
            response.statuses[name].CopyFrom(self._status())
        return response.SerializeToString()

    def _status(self) -> HealthCheckResponse:
        serving = HealthCheckResponse.SERVING if self.serving else HealthCheckResponse.NOT_SERVING
        return HealthCheckResponse(status=serving)


class _Unary(Handler):
    """One call: takes one message and sends its answer."""

    def __init__(self, call: Call, answer: Callable[[bytes], bytes]) -> None:
        self._call = call
        self._answer = answer
        self._request: bytes | None = None

    @override
    def received(self, message: bytes) -> None:
        if self._request is not None or len(message) > MAX_NAME_BYTES:
            self._call.finish(Status.INVALID_ARGUMENT, f"send one message of at most {MAX_NAME_BYTES} bytes")
            return
        self._request = message

    @override
    def half_closed(self) -> None:
        if self._request is None:
            self._call.finish(Status.INVALID_ARGUMENT, "send one message")
            return
        try:
            answer = self._answer(self._request)
        except DecodeError:
            self._call.finish(Status.INVALID_ARGUMENT, "the message is malformed")
            return
        self._call.send(answer)
        self._call.finish()

    @override
    def cancelled(self) -> None:
        pass
