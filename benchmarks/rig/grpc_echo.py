"""The baseline of the CPU benchmark: a bare ext-proc server on ``grpc.aio`` that does none of a picker's work.

uvloop, upb stubs, plaintext; it parses each request body with ``json.loads`` and answers with a fixed endpoint, in full
response mode (every body goes through it). Run: ``python -m benchmarks.rig.grpc_echo PORT ENDPOINT``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

from epp.pb import ext_proc_pb2 as pb

CHUNK = 62_000
DESTINATION = "x-gateway-destination-endpoint"


def header_answer(endpoint: str) -> pb.ProcessingResponse:
    answer = pb.ProcessingResponse()
    option = answer.request_headers.response.header_mutation.set_headers.add()
    option.header.key, option.header.raw_value = DESTINATION, endpoint.encode()
    answer.request_headers.response.clear_route_cache = True
    answer.dynamic_metadata["envoy.lb"] = {DESTINATION: endpoint}
    return answer


def body_answers(body: bytes, kind: str, *, end: bool) -> list[pb.ProcessingResponse]:
    answers = []
    for start in range(0, max(len(body), 1), CHUNK):
        answer = pb.ProcessingResponse()
        streamed = getattr(answer, kind).response.body_mutation.streamed_response
        streamed.body = body[start : start + CHUNK]
        streamed.end_of_stream = end and start + CHUNK >= len(body)
        answers.append(answer)
    return answers


async def process(messages: AsyncIterator[pb.ProcessingRequest], endpoint: str) -> AsyncIterator[pb.ProcessingResponse]:
    body = bytearray()
    async for message in messages:
        match message.WhichOneof("request"):
            case "request_headers":
                if message.request_headers.end_of_stream:
                    yield header_answer(endpoint)
            case "request_body":
                body += message.request_body.body
                if message.request_body.end_of_stream:
                    json.loads(body)
                    yield header_answer(endpoint)
                    for answer in body_answers(bytes(body), "request_body", end=True):
                        yield answer
            case "response_headers":
                answer = pb.ProcessingResponse()
                answer.response_headers.SetInParent()
                yield answer
            case "response_body":
                part = message.response_body
                for answer in body_answers(part.body, "response_body", end=part.end_of_stream):
                    yield answer
            case "request_trailers":
                yield pb.ProcessingResponse(request_trailers=pb.TrailersResponse())
            case "response_trailers":
                yield pb.ProcessingResponse(response_trailers=pb.TrailersResponse())


async def serve(port: int, endpoint: str) -> None:
    server = grpc.aio.server()

    async def method(
        messages: AsyncIterator[pb.ProcessingRequest], _context: Any
    ) -> AsyncIterator[pb.ProcessingResponse]:
        async for answer in process(messages, endpoint):
            yield answer

    handler = grpc.stream_stream_rpc_method_handler(
        method,
        request_deserializer=pb.ProcessingRequest.FromString,
        response_serializer=pb.ProcessingResponse.SerializeToString,
    )
    service = grpc.method_handlers_generic_handler("envoy.service.ext_proc.v3.ExternalProcessor", {"Process": handler})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


def main() -> None:
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))


if __name__ == "__main__":
    main()
