"""A Llama with random weights and a tokenizer, for the benchmarks of kvengine where there is no GPU.

Run: ``python -m benchmarks.kvengine.random_model FOLDER``, in the environment of ``tests/vllm/environment.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.kvengine.long_text import long_text
from tests.vllm.model import Shape, make_model
from tests.vllm.tokenizer import make_tokenizer

SHAPE = Shape(
    hidden=512, layers=6, inner=1536, heads=8, kv_heads=2, head_size=64, vocabulary=2048, max_tokens=32_768, spread=0.1
)
"""A shape so large that a CPU takes seconds for a prompt of thousands of tokens. Its KV takes 6 KiB per token."""


def make(folder: Path, shape: Shape = SHAPE) -> Path:
    """Write the model and its tokenizer to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    make_model(folder, shape=shape)
    return make_tokenizer(folder, ["Hi " * 20, long_text(100_000, seed=-1)], shape.vocabulary)


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
