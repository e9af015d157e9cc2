"""The ``vllmgrpc-parser``, which reads vLLM's gRPC API (h2c).

A request names neither a model nor a salt: one server has one model. Source: vLLM's vllm_engine.proto, as of version
0.32.
"""

from __future__ import annotations

from hashlib import blake2b

from typing_extensions import override

from epp.errors import BadRequest
from epp.parsers.base import H2C, UNREAD, Parsed, Parser
from epp.parsers.by_path import longest_suffix
from epp.parsers.canonical import Rendered, render_text, render_tokens
from epp.parsers.grpc_body import read
from epp.parsers.identity import identity
from epp.pb.vllm_engine_pb2 import EmbedRequest, GenerateRequest, MultimodalInputs, TokenizedInput
from scorers.base import NoParameters, Prompt

SERVICE = "vllm.grpc.engine.VllmEngine"
GENERATE, EMBED = f"/{SERVICE}/Generate", f"/{SERVICE}/Embed"
OTHERS = tuple(
    f"/{SERVICE}/{method}"
    for method in (
        "Abort", "GetLoads", "GetModelInfo", "GetServerInfo", "GetTokenizer", "HealthCheck", "SubscribeKvEvents",
    )
)  # fmt: skip
"""The methods without a prompt; their requests pass unread."""


class VllmGrpcParser(Parser[NoParameters]):
    """Reads ``Generate`` and ``Embed``; passes the service's other methods on unread."""

    type_name = "vllmgrpc-parser"
    paths = (GENERATE, EMBED, *OTHERS)
    protocols = frozenset({H2C})

    @override
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        method = longest_suffix(path, self.paths)
        if method == GENERATE:
            request = read(body, GenerateRequest())
            return parsed(generated(request), streaming=request.stream)
        if method == EMBED:
            return parsed(tokens(read(body, EmbedRequest()).tokenized), streaming=False)
        return UNREAD


def generated(request: GenerateRequest) -> Rendered:
    """Return the prompt of a Generate request. Raises: BadRequest if there is none."""
    kind = request.WhichOneof("input")
    if kind == "text" and request.text:
        rendered = render_text(request.text)
    elif kind == "tokenized":
        rendered = tokens(request.tokenized)
    else:
        raise BadRequest("one of `text` and `tokenized` must hold the prompt")
    if request.HasField("mm_inputs"):
        # The placeholders' ids are the same for every picture, so such a prompt shares its prefix only with prompts
        # that have the same media.
        return Rendered(rendered.kind + media(request.mm_inputs), rendered.data)
    return rendered


def tokens(given: TokenizedInput) -> Rendered:
    """Return the prompt of token ids, or of the text that they were made of. Raises: BadRequest if both are empty."""
    if not given.input_ids and given.original_text:
        return render_text(given.original_text)
    if not given.input_ids:
        raise BadRequest("`tokenized.input_ids` must hold at least one token id")
    return render_tokens(given.input_ids, "tokenized.input_ids")


def media(given: MultimodalInputs) -> bytes:
    """Return a digest of a prompt's media: of their hashes if the client sends these, else of everything it sends."""
    if given.mm_hashes:
        given = MultimodalInputs(mm_hashes=given.mm_hashes, mm_placeholders=given.mm_placeholders)
    return blake2b(given.SerializeToString(deterministic=True), digest_size=16).digest()


def parsed(rendered: Rendered, *, streaming: bool) -> Parsed:
    """Return the result for a request with one prompt."""
    return Parsed(
        model="",
        target_model="",
        prompts=(Prompt(identity(rendered.kind, "", None), rendered.data),),
        prompt_tokens=max(1, rendered.tokens),
        streaming=streaming,
    )
