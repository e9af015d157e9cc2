"""Read the token counts of a vLLM gRPC response as it passes by, in pieces of any size.

Source: vLLM's vllm_engine.proto and its servicer, as of version 0.32. A streamed ``Generate`` sends chunks, each with
the number of tokens that it adds, and at the end a ``GenerateComplete`` that repeats the last chunk's number. A
response that is not streamed is one ``GenerateComplete``. Each of several samples (``n``) has an index of its own. An
``Embed`` answers with one ``EmbedResponse``, which counts the prompt's tokens only.
"""

from __future__ import annotations

from epp.decision import Usage
from epp.errors import BadRequest
from epp.parsers.grpc_body import HEADER_BYTES, decoded
from epp.pb.vllm_engine_pb2 import EmbedResponse, GenerateResponse

MESSAGE_BYTES = 4 * 1024 * 1024
"""The largest message that is decoded; log-probabilities of a long prompt make one large. A guess."""


class GrpcUsage:
    """Reads usage, as a ``UsageReader``, from length-prefixed messages.

    Keeps at most one unfinished message of ``MESSAGE_BYTES``. Larger messages, compressed ones and those that are not
    of this API are skipped.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skip_bytes = 0
        self._prompt_tokens = 0
        self._cached_tokens: int | None = None
        self._added: dict[int, int] = {}
        """Output tokens by sample, summed over its chunks."""
        self._complete: dict[int, int] = {}
        """Output tokens by sample, as its last message gives them."""

    @property
    def usage(self) -> Usage | None:
        """Return the counts of the messages so far; None before the first that contains the number of prompt tokens."""
        if not self._prompt_tokens:
            return None
        output_tokens = sum({**self._complete, **self._added}.values())
        return Usage(self._prompt_tokens, output_tokens, self._cached_tokens)

    def feed(self, chunk: bytes) -> None:
        """Read the messages that end in ``chunk``. Never raises."""
        skipped = min(self._skip_bytes, len(chunk))
        self._skip_bytes -= skipped
        self._rest += chunk[skipped:]
        rest, position = self._rest, 0
        while len(rest) - position >= HEADER_BYTES:
            start = position + HEADER_BYTES
            end = start + int.from_bytes(rest[position + 1 : start], "big")
            if end - start > MESSAGE_BYTES:
                self._skip_bytes = max(0, end - len(rest))
                position = min(end, len(rest))
                continue
            if end > len(rest):
                break
            if rest[position] == 0:
                self._read(bytes(rest[start:end]))
            position = end
        del rest[:position]

    def end(self) -> None:
        """Forget a message that was cut off."""
        self._rest.clear()

    def _read(self, message: bytes) -> None:
        try:
            # A Generate's message has no number in field 2, and is therefore never taken for an EmbedResponse.
            if prompt_tokens := decoded(message, EmbedResponse()).prompt_tokens:
                self._prompt_tokens = prompt_tokens
                return
            response = decoded(message, GenerateResponse())
        except BadRequest:
            return
        if response.HasField("chunk"):
            part = response.chunk
            self._added[part.index] = self._added.get(part.index, 0) + part.completion_tokens
            self._prompt_tokens = part.prompt_tokens or self._prompt_tokens
            cached = part.cached_tokens
        elif response.HasField("complete"):
            whole = response.complete
            self._complete[whole.index] = whole.completion_tokens
            self._prompt_tokens = whole.prompt_tokens or self._prompt_tokens
            cached = whole.cached_tokens
        else:
            return
        self._cached_tokens = max(cached, self._cached_tokens or 0)
