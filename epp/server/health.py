"""gRPC health checking, for probes and proxies, on any port.

``liveness`` is always serving: a restart brings nothing that is missing, and cuts what drains. Without an election all
other names are known and have one answer. With one, the names that probes of readiness and proxies use are serving at
the picker that was chosen, and other names are unknown. ``Watch`` is not offered. Source: grpc.health.v1, and for the
names ``cmd/epp/runner/health.go`` of the Go picker, whose ``liveness`` is that of readiness without an election.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError
from typing_extensions import override

from epp.pb.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListResponse
from epp.wire.service import Call, Handler, Methods, Status

SERVICE = "/grpc.health.v1.Health/"
LIVENESS, READINESS, EXT_PROC = "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"
MAX_NAME_BYTES = 1024
"""The largest request that is read. A guess."""


class Health:
    """The health service: serving while ``ready`` returns True and ``drain`` was not called. Owner: the event loop."""

    def __init__(self, ready: Callable[[], bool], chosen: Callable[[], bool] | None = None) -> None:
        """``chosen`` is whether this picker of several should get requests; None where there is no election."""
        self._ready, self._chosen = ready, chosen
        self._draining = False

    @property
    def able(self) -> bool:
        """Whether this picker can serve new requests, be it chosen or not."""
        return not self._draining and self._ready()

    @property
    def serving(self) -> bool:
        """Whether new requests should be sent here."""
        return self.able and (self._chosen is None or self._chosen())

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
        return self._status(HealthCheckRequest.FromString(request).service).SerializeToString()

    def list(self, _: bytes) -> bytes:
        """Return the answer to ``List``."""
        response = HealthListResponse()
        for name in (EXT_PROC,) if self._chosen is None else (LIVENESS, READINESS, EXT_PROC):
            response.statuses[name].CopyFrom(self._status(name))
        return response.SerializeToString()

    def _status(self, name: str) -> HealthCheckResponse:
        if self._chosen is not None and name not in ("", LIVENESS, READINESS, EXT_PROC):
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        serving = self.serving or name == LIVENESS
        return HealthCheckResponse(status=HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING)


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
