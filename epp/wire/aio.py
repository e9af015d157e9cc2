"""The second transport: it hosts the same methods on ``grpc.aio``, as a fallback and as the reference in tests."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from urllib.parse import unquote

import grpc
from grpc import aio

from epp.wire.http2.counters import Counters, Statistics
from epp.wire.http2.limits import Limits
from epp.wire.http2.share import Share
from epp.wire.service import Call, Handler, Methods, Status

logger = logging.getLogger(__name__)

_CODES = {int(code.value[0]): code for code in grpc.StatusCode}
_HALF_CLOSE_S = 0.002
"""How long to wait after the end of a call's requests, since grpcio reports a cancelled call as ended first.

The cancellation follows a moment later: in 97 of 100 calls within three runs of the loop, in all within ten (grpcio
1.85, 2026-11). A later one would look like a half-close."""
_Context = aio.ServicerContext[bytes, bytes]


Certificates = Callable[[], tuple[bytes, bytes]]
"""Returns the current chain and private key; a thread of grpcio calls it at each handshake."""


class GrpcioServer:
    """Serves ``methods`` with ``grpc.aio``. Owned by the event loop that calls ``start``."""

    def __init__(self, methods: Methods, *, limits: Limits | None = None, tls: Certificates | None = None) -> None:
        self._methods = methods
        self._limits = limits or Limits()
        self._counters = Counters()
        self._tls = tls
        self._server: aio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which ``port=0`` leaves to the system. Raises: OSError."""
        options = [
            ("grpc.max_receive_message_length", self._limits.max_receive_message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", self._limits.max_concurrent_streams),
            ("grpc.max_metadata_size", self._limits.max_header_list_bytes),
            ("grpc.absolute_max_metadata_size", self._limits.max_header_list_bytes),
            ("grpc.keepalive_time_ms", 60_000),  # an idle connection gets a PING, and ends if that has no answer
            ("grpc.keepalive_timeout_ms", 30_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),  # 0: no limit
            ("grpc.server_handshake_timeout_ms", int(self._limits.handshake_s * 1000)),
            ("grpc.so_reuseport", 0),
        ]
        handlers = [_Methods(self._methods, self._counters, self._limits)]
        self._server = aio.server(handlers=handlers, options=options, maximum_concurrent_rpcs=self._limits.max_streams)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._tls:
                bound = self._server.add_secure_port(address, _credentials(self._tls))
            else:
                bound = self._server.add_insecure_port(address)
        except RuntimeError as error:  # the error by which grpcio reports a failed bind
            raise OSError(f"cannot listen on {address}: {error}") from error
        await self._server.start()
        return bound

    async def drain(self, timeout_s: float) -> None:
        """Refuse new calls and wait for the open ones; cancel those that are open after ``timeout_s``."""
        if self._server:
            await self._server.stop(timeout_s)

    async def stop(self) -> None:
        """End at once, and cancel the open calls."""
        if self._server:
            await self._server.stop(None)

    def statistics(self) -> Statistics:
        """Return the server's counts; grpcio does not expose connections, frames and bytes."""
        return self._counters.snapshot()


def _credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Return credentials that follow ``certificates`` as they change."""

    def configuration() -> grpc.ServerCertificateConfiguration:
        chain, private_key = certificates()
        return grpc.ssl_server_certificate_configuration([(private_key, chain)])

    return grpc.dynamic_ssl_server_credentials(configuration(), configuration)


class _Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Offers every method to grpcio as bidirectional: the kinds of methods do not differ on the wire."""

    def __init__(self, methods: Methods, counters: Counters, limits: Limits) -> None:
        self._methods = methods
        self._counters = counters
        self._limits = limits

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        factory = self._methods.get(handler_call_details.method)
        if factory is None:
            return None
        return grpc.stream_stream_rpc_method_handler(partial(self._serve, factory))

    async def _serve(
        self, factory: Callable[[Call], Handler], requests: AsyncIterator[bytes], context: _Context
    ) -> None:
        """Run one call: another task reads for the handler, and this task writes what the handler sends."""
        counters = self._counters
        counters.streams += 1
        counters.streams_total += 1
        call = _AioCall(context, counters, self._limits)
        reader: asyncio.Task[None] | None = None
        silence = asyncio.get_running_loop().call_later(self._limits.first_message_s, call.expire_silent)
        try:
            call.handler = factory(call)
            call.metadata = ()
            reader = asyncio.create_task(_read(requests, call, call.handler))
            await call.write_all(context, reader)
        except asyncio.CancelledError:
            call.cancel()
            raise
        except Exception:  # raised by the handler: its call fails, and the others go on
            logger.exception("handler failed; its call ends with INTERNAL")
            counters.handler_errors += 1
            call.cancel()
            context.set_code(grpc.StatusCode.INTERNAL)
            context.set_details("internal error")
        finally:
            silence.cancel()  # otherwise the loop would keep the call
            counters.streams -= 1
            call.drop()
            if reader:
                reader.cancel()


async def _read(requests: AsyncIterator[bytes], call: _AioCall, handler: Handler) -> None:
    """Pass the requests to the handler, whose exceptions end this task."""
    try:
        async for message in requests:
            if call.over:
                return
            call.counters.messages_received += 1
            call.silent = False
            handler.received(message)
        await asyncio.sleep(_HALF_CLOSE_S)
        if not call.over:
            handler.half_closed()
    finally:
        call.changed.set()


class _AioCall:
    """The ``Call`` of a handler on grpcio. Owned by the call's two tasks, which share one event loop."""

    def __init__(self, context: _Context, counters: Counters, limits: Limits) -> None:
        self.metadata: Sequence[tuple[str, str]] = tuple(
            (key, _text(value)) for key, value in context.invocation_metadata() or ()
        )
        self.peer = unquote(context.peer().partition(":")[2])
        self.handler: Handler | None = None
        self.counters = counters
        self.changed = asyncio.Event()
        self.over = False
        self._queue: deque[bytes] = deque()
        self._share = Share(limits, counters)
        self._limits = limits
        self.silent = True
        self._task = _current_task()
        self._end: tuple[Status, str] | None = None

    def send(self, message: bytes) -> None:
        """Queue one message; cancel the call if the client lets too many bytes queue up."""
        if not self.over:
            self.counters.messages_sent += 1
            self._queue.append(message)
            self._share.add(len(message))
            self.changed.set()
            if self._share.bytes > self._limits.max_stream_queue_bytes or self._share.forbids():
                self.counters.crowded_out_streams += self._share.forbids()
                self._task.cancel()  # the client does not read

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """Send the trailers after what is queued."""
        if not self.over:
            self.over = True
            self._end = (status, message)
            self.changed.set()

    def drop(self) -> None:
        """Drop all queued messages."""
        self._queue.clear()
        self._share.add(-self._share.bytes)

    def expire_silent(self) -> None:
        """Cancel the call if no message has arrived."""
        if self.silent and not self.over:
            self.counters.silent_streams += 1
            self._task.cancel()

    def cancel(self) -> None:
        """End the call, and notify the handler once."""
        if self.over:
            return
        self.over = True
        if self.handler:
            try:
                self.handler.cancelled()
            except Exception:
                logger.exception("handler failed in cancelled")
                self.counters.handler_errors += 1

    async def write_all(self, context: _Context, reader: asyncio.Task[None]) -> None:
        """Write until the handler finishes. Raises: what the handler raised while reading."""
        while True:
            while self._queue:
                message = self._queue.popleft()
                self._share.add(-len(message))
                await context.write(message)
            if self._end:
                status, text = self._end
                context.set_code(_CODES[int(status)])
                context.set_details(text)
                return
            if reader.done():
                reader.result()
            self.changed.clear()
            await self.changed.wait()


def _current_task() -> asyncio.Task[object]:
    """Return the task that serves the call."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - grpcio serves each call in one
    return task


def _text(value: str | bytes) -> str:
    """Return a metadata value as it was sent; grpcio decodes the base64 of binary ones."""
    return value if isinstance(value, str) else base64.b64encode(value).rstrip(b"=").decode()
