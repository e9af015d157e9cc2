"""OpenAI's embeddings: each input is computed as a prompt, and its vector is invented from its bytes.

An engine that embeds generates no tokens. Here each input counts one generated token, since the simulated engine has no
other way to end a sequence.
"""

from __future__ import annotations

from array import array
from base64 import b64encode
from collections.abc import Sequence
from hashlib import blake2b
from math import sqrt
from typing import Literal

import msgspec
from typing_extensions import override

from epp.lab.engine.ask import Ask, Prompts, read_prompts
from epp.lab.engine.errors import bad_request
from epp.lab.engine.live import Answer
from epp.lab.engine.writer import Body

DIMENSIONS = 64
"""The length of a vector when the client does not give one."""
MOST_DIMENSIONS = 65_536


class Embeddings(msgspec.Struct, kw_only=True):
    """The body of ``POST /v1/embeddings``."""

    model: str
    input: Prompts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int = DIMENSIONS
    cache_salt: str | None = None


def ask_embeddings(request: Embeddings) -> Ask:
    """Return what a request requires of the engine. Raises: ApiError 400."""
    if not 1 <= request.dimensions <= MOST_DIMENSIONS:
        raise bad_request(f"dimensions must be 1 to {MOST_DIMENSIONS}, got {request.dimensions}", "dimensions")
    prompts = read_prompts(request.input, "input")
    return Ask(model=request.model, prompts=prompts, output_tokens=1, salt=request.cache_salt or "")


class Vectors(Body):
    """Writes the answer of ``/v1/embeddings``."""

    def __init__(self, model: str, prompts: Sequence[bytes], request: Embeddings) -> None:
        self._model, self._prompts = model, prompts
        self._dimensions, self._packed = request.dimensions, request.encoding_format == "base64"

    @override
    def whole(self, answer: Answer) -> bytes:
        data = [
            {"object": "embedding", "index": n, "embedding": self._written(vector(prompt, self._dimensions))}
            for n, prompt in enumerate(self._prompts)
        ]
        usage = {"prompt_tokens": answer.prompt_tokens, "total_tokens": answer.prompt_tokens}
        return msgspec.json.encode({"object": "list", "data": data, "model": self._model, "usage": usage})

    def _written(self, numbers: array[float]) -> str | list[float]:
        return b64encode(numbers.tobytes()).decode() if self._packed else numbers.tolist()


def vector(data: bytes, dimensions: int) -> array[float]:
    """Return a unit vector that depends on ``data`` only: equal bytes have equal vectors."""
    key = blake2b(data, digest_size=32).digest()
    rounds = range(-(-dimensions // 32))
    drawn = b"".join(blake2b(number.to_bytes(4, "little"), key=key).digest() for number in rounds)
    numbers = [int.from_bytes(drawn[2 * n : 2 * n + 2], "little") - 32767.5 for n in range(dimensions)]
    length = sqrt(sum(number * number for number in numbers))
    return array("f", (number / length for number in numbers))
