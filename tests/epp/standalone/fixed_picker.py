"""A picker on grpcio that always gives the same answer, and records what the proxy sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import grpc

from epp.decision import Outcome
from epp.extproc.access_log import AccessLog
from epp.pb.ext_proc_pb2 import (
    BodyResponse,
    CommonResponse,
    HeadersResponse,
    ProcessingRequest,
    ProcessingResponse,
    TrailersResponse,
)

LARGE = [("grpc.max_receive_message_length", 1 << 30)]


@dataclass
class FixedPicker:
    """Sends every request to ``destination``; an empty one leaves it to the proxy."""

    destination: str = ""
    silent: bool = False
    """Whether it accepts streams and never answers."""
    knows_every_end: bool = False
    """Whether each end counts as seen before the access log reports it."""
    hangs_up_after: str = ""
    """The kind of message after whose answer the conversation is over."""
    streams: list[list[ProcessingRequest]] = field(default_factory=list)
    closed: int = 0
    """The number of streams that have ended."""
    picks: list[int] = field(default_factory=list)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """The ends of the picks, as the access log reports them."""
    port: int = 0
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def last(self) -> Outcome:
        """The outcome of the latest pick."""
        return self.outcomes[self.picks[-1]]

    def saw_all_ends(self) -> bool:
        """Return whether the end of every pick is known and every stream has ended."""
        return self.closed == len(self.streams) and self.outcomes.keys() >= set(self.picks)

    def forget(self) -> None:
        """Reset everything but the pick ids."""
        self.streams.clear()
        self.picks.clear()
        self.outcomes.clear()
        self.closed, self.destination, self.silent, self.hangs_up_after = 0, "", False, ""

    def ended(self, pick_id: int, outcome: Outcome) -> bool:
        self.outcomes[pick_id] = outcome
        return not self.knows_every_end

    async def start(self, port: int = 0) -> None:
        self.log = AccessLog(self)
        self._server = grpc.aio.server(options=[*LARGE, ("grpc.so_reuseport", 0)])
        process = grpc.stream_stream_rpc_method_handler(self._process)
        ends = grpc.stream_unary_rpc_method_handler(self._ends)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "envoy.service.ext_proc.v3.ExternalProcessor", {"Process": process}
                ),
                grpc.method_handlers_generic_handler(
                    "envoy.service.accesslog.v3.AccessLogService", {"StreamAccessLogs": ends}
                ),
            )
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def _ends(self, messages: AsyncIterator[bytes], _: Any) -> bytes:
        async for message in messages:
            self.log.received(message)
        return b""

    async def _process(self, messages: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        seen: list[ProcessingRequest] = []
        self.streams.append(seen)
        try:
            async for raw in messages:
                message = ProcessingRequest.FromString(raw)
                seen.append(message)
                if self.silent:
                    await asyncio.Event().wait()
                yield self._answer(message).SerializeToString()
                if message.WhichOneof("request") == self.hangs_up_after:
                    return
        finally:
            self.closed += 1

    def _answer(self, message: ProcessingRequest) -> ProcessingResponse:
        kind = message.WhichOneof("request")
        if kind in ("request_headers", "response_headers"):
            answer = ProcessingResponse(**{kind: HeadersResponse(response=CommonResponse())})
        elif kind in ("request_body", "response_body"):
            answer = ProcessingResponse(**{kind: BodyResponse(response=CommonResponse())})
        else:
            return ProcessingResponse(**{kind: TrailersResponse()})
        last = kind == "request_body" or (kind == "request_headers" and message.request_headers.end_of_stream)
        if last:
            self.picks.append(next(self._ids))
            metadata: dict[str, Any] = {"tierwise": {"pick": str(self.picks[-1])}}
            if self.destination:
                metadata["envoy.lb"] = {"x-gateway-destination-endpoint": self.destination}
            answer.dynamic_metadata.update(metadata)
        return answer


def kinds(stream: list[ProcessingRequest]) -> list[str]:
    """Return the names of a stream's messages, in order."""
    return [str(message.WhichOneof("request")) for message in stream]
