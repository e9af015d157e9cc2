"""An engine in a process group of its own, to be killed: prints what it does, one JSON object to a line."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main(model: Path, role: str) -> None:
    """Answer two scenarios twice, say so, and wait."""
    from tests.vllm.engine import engine, series
    from tests.vllm.scenarios import tokens

    def say(**what: Any) -> None:
        print(json.dumps(what), flush=True)

    with engine(
        model, {"max_local_cpu_size": 0.2, "chunk_size": 64}, transfer={"kv_role": role}, enable_prefix_caching=True
    ) as started:
        for _ in range(2):
            for name in ("few", "single"):
                say(scenario=name, tokens=tokens(started, name))
            started.settle()
            started.forget_gpu()
        say(
            stored=series("kvengine:stored_tokens_total"),
            hits=started.metric("vllm:external_prefix_cache_hits"),
        )
        if role == "kv_producer":
            while True:  # until it is killed, as if in the middle of its work
                started.generate([[7] * 500] * 8, max_tokens=400)
                say(serving=time.time())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
