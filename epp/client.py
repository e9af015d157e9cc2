"""The client of a request, as its headers show it: the API whose errors it reads, and its own id of the request."""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from epp.decision import RequestHead

REQUEST_ID = "x-request-id"


GRPC_CONTENT = "application/grpc"


ANTHROPIC_PATHS = ("/messages", "/messages/count_tokens")


ANTHROPIC_HEADER = "anthropic-version"
"""The header that its SDKs always send. Their ``x-api-key`` proves less, since other gateways use that name, too."""


LONGEST_ID = 200
"""The most characters of a request's id in an answer. A guess: ids of a dozen systems in a row."""


_KEPT_BYTES = 64


class Api(Enum):
    """The API whose errors a client reads."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GRPC = "grpc"


class Client(NamedTuple):
    """The facts about a client that shape the refusal of its request."""

    api: Api = Api.OPENAI
    request_id: str = ""


_OTHER = Client()


def client_of(head: RequestHead) -> Client:
    """Return the client that sent ``head``."""
    headers, path = head.headers, head.path
    if headers.get("content-type", "").startswith(GRPC_CONTENT):
        return Client(Api.GRPC)
    if path.endswith(ANTHROPIC_PATHS) or ANTHROPIC_HEADER in headers:
        return Client(Api.ANTHROPIC, headers.get(REQUEST_ID, "")[:LONGEST_ID])
    return _OTHER


def shortened(name: str, most_bytes: int) -> str:
    """Return a name that a client chose in at most ``most_bytes`` bytes of UTF-8, at least 81.

    A longer name becomes its first 64 bytes and a digest, so that names that differ stay different. Half of a surrogate
    pair becomes ``?``.
    """
    if name.isascii() and len(name) <= most_bytes:
        return name
    encoded = name.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return encoded.decode()
    digest = blake2b(encoded, digest_size=8).hexdigest()
    return f"{encoded[:_KEPT_BYTES].decode(errors='ignore')}~{digest}"
