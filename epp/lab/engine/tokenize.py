"""vLLM's tokenizer routes and its rendering, with the simulator's tokens: four bytes of text each.

The token ids are those that the engine computes for a text, and those that its KV events carry.
"""

from __future__ import annotations

import msgspec

from epp.lab.engine import tokens
from epp.lab.engine.ask import Message, bytes_of, conversation
from epp.lab.engine.errors import bad_request


class Tokenize(msgspec.Struct, kw_only=True):
    """The body of ``POST /tokenize``, with a text or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    return_token_strs: bool = False


class Detokenize(msgspec.Struct, kw_only=True):
    """The body of ``POST /detokenize``."""

    model: str | None = None
    tokens: list[int]


def tokenized(request: Tokenize, max_model_len: int) -> bytes:
    """Return the answer of ``/tokenize``. Raises: ApiError 400 if neither a text nor a conversation is given."""
    if request.messages is not None:
        data = conversation(request.messages)
    elif request.prompt is not None:
        data = request.prompt.encode()
    else:
        raise bad_request("neither prompt nor messages is given; send one of them", "prompt")
    ids = tokens.ids(data)
    texts = [tokens.text([number]) for number in ids] if request.return_token_strs else None
    answer = {"count": len(ids), "max_model_len": max_model_len, "tokens": ids, "token_strs": texts}
    return msgspec.json.encode(answer)


def detokenized(request: Detokenize) -> bytes:
    """Return the answer of ``/detokenize``. Raises: ApiError 400 for ids out of range."""
    bytes_of(request.tokens, "tokens")
    return msgspec.json.encode({"prompt": tokens.text(request.tokens)})


def rendered(prompt: bytes) -> dict[str, list[int]]:
    """Return the token ids of ``prompt``, in the form of vLLM's rendering."""
    return {"token_ids": tokens.ids(prompt)}
