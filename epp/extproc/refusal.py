"""Writes a refusal for its client: in the form of the client's API, or as the Go picker's line of text.

| the request | what its client reads |
|---|---|
| gRPC, by its content type | the gRPC status, and the sentence as its message |
| Anthropic's, by its path or its header | ``{"type": "error", "error": {"type", "message"}, "request_id"}`` |
| any other | ``{"error": {"message", "type", "param", "code"}}``, as OpenAI's and vLLM's servers write it |

Sources: OpenAI's API reference, with vLLM's words for the types and its number as the code, since the engines' own
refusals come through the same proxy; Anthropic's API reference, "Errors".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from epp.client import GRPC_CONTENT, Api, Client
from epp.errors import EppError
from epp.extproc.options import ErrorFormat

JSON = "application/json"
ANY_ORIGIN = ("access-control-allow-origin", "*")
"""The header that lets scripts of any web page read an answer, as vLLM allows by default."""

OPENAI_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    415: "UnsupportedMediaTypeError",
    429: "RateLimitError",
    431: "RequestTooLargeError",
    502: "BadGatewayError",
    503: "ServiceUnavailableError",
    504: "GatewayTimeoutError",
}
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Refusal(NamedTuple):
    """The body of a refusal, and its content type; an empty one leaves the type to the proxy."""

    body: bytes
    content_type: str = ""


def written(error: EppError, form: ErrorFormat, client: Client) -> Refusal:
    """Return ``error`` as the ``client`` reads it, in the given form."""
    if form is ErrorFormat.TEXT:
        return Refusal(error.body.encode("utf-8", "replace"))
    sentence = str(error).encode("utf-8", "replace")
    if client.api is Api.GRPC:
        return Refusal(sentence, GRPC_CONTENT)
    written = envelope(client.api, error.http_status, sentence.decode(), client.request_id, param=error.param)
    return Refusal(msgspec.json.encode(written), JSON)


def envelope(
    api: Api,
    status: int,
    sentence: str,
    request_id: str = "",
    code: int | str | None = None,
    param: str | None = None,
) -> Mapping[str, object]:
    """Return the JSON object around ``sentence`` that a client of ``api`` reads; ``api`` is not gRPC.

    ``code`` defaults to ``status``.
    """
    if api is Api.ANTHROPIC:
        other = "api_error" if status >= 500 else "invalid_request_error"
        error = {"type": ANTHROPIC_TYPES.get(status, other), "message": sentence}
        return {"type": "error", "error": error, **({"request_id": request_id} if request_id else {})}
    kind = OPENAI_TYPES.get(status, "InternalServerError" if status >= 500 else "BadRequestError")
    return {"error": {"message": sentence, "type": kind, "param": param, "code": status if code is None else code}}
