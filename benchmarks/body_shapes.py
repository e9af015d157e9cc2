"""Does reading a body cost in proportion to its size, whatever it is made of?

Bodies that a client made to cost much, at three sizes, with a model to be rewritten: a row whose cost for a MiB grows
with the size would be a way to stop the picker. A dash is a refusal before the body was decoded. CPU time of this
thread, best of three. Run: ``python -m benchmarks.body_shapes [--json]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time

from epp.errors import BadRequest
from epp.parsers import PARSERS, ByPath

MIB = 1 << 20
SIZES = (1, 4, 16)
CHAT, COMPLETION, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"

SHAPES: dict[str, tuple[str, bytes, bytes, bytes]] = {
    "one text": (COMPLETION, b'{"model":"m","prompt":"', b"lorem ipsum ", b'"}'),
    "one text of escapes": (COMPLETION, b'{"model":"m","prompt":"', b"\\u00e9", b'"}'),
    "token ids": (COMPLETION, b'{"model":"m","prompt":[', b"150000,", b"1]}"),
    "small token ids": (COMPLETION, b'{"model":"m","prompt":[', b"1,", b"1]}"),
    "prompts": (COMPLETION, b'{"model":"m","prompt":[', b'"a",', b'"a"]}'),
    "prompts of token ids": (COMPLETION, b'{"model":"m","prompt":[', b"[1],", b"[1]]}"),
    "empty messages": (CHAT, b'{"model":"m","messages":[', b"{},", b"{}]}"),
    "short messages": (CHAT, b'{"model":"m","messages":[', b'{"role":"user","content":"hello"},', b"{}]}"),
    "empty parts": (CHAT, b'{"model":"m","messages":[{"content":[', b"{},", b"{}]}]}"),
    "parts that are texts": (CHAT, b'{"model":"m","messages":[{"content":[', b'"",', b'""]}]}'),
    "empty tools": (MESSAGES, b'{"model":"m","messages":[{"content":"x"}],"tools":[', b"{},", b"{}]}"),
    "results of tools": (
        MESSAGES, b'{"model":"m","messages":[{"role":"user","content":[', b'{"type":"tool_result"},', b"{}]}]}",
    ),
    "many models": (COMPLETION, b'{"prompt":"x",', b'"model":"x",', b'"model":"m"}'),
    "many models, escaped": (COMPLETION, b'{"prompt":"x",', b'"\\u006dodel":"x",', b'"model":"m"}'),
    "unknown keys": (COMPLETION, b'{"prompt":"x",', b'"a":1,', b'"model":"m"}'),
    "whitespace": (COMPLETION, b'{"prompt":"x",', b"\n\t ", b'"model":"m"}'),
    "whitespace after keys": (COMPLETION, b'{"prompt":"x",', b'"a"    :    1,', b'"model":"m"}'),
    "deep, unknown": (COMPLETION, b'{"model":"m","prompt":"x","z":', b"[", b""),
}  # fmt: skip


def cost_ms(parsers: ByPath, shape: str, mib: int) -> float | None:
    """CPU milliseconds for one MiB; None when the body is refused before it is decoded."""
    path, before, filler, after = SHAPES[shape]
    body = before + filler * (mib * MIB // len(filler)) + after
    best = float("inf")
    for _ in range(3):
        gc.collect()
        began = time.thread_time()
        try:
            parsers.parse(path, body, "another")
        except BadRequest as error:
            if "at most" in str(error):
                return None
        best = min(best, time.thread_time() - began)
    return best * 1000 / mib


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true")
    as_json = arguments.parse_args().json
    parsers = ByPath([parser() for parser in PARSERS])
    rows = {shape: [cost_ms(parsers, shape, mib) for mib in SIZES] for shape in SHAPES}
    if as_json:
        print(json.dumps({"sizes_mib": SIZES, "ms_per_mib": rows, "python": platform.python_version()}))
        return
    print(f"CPU ms for a MiB of body; CPython {platform.python_version()}")
    print(f"{'made of':24s}" + "".join(f"{mib:>6d} MiB" for mib in SIZES))
    for shape, costs in rows.items():
        print(f"{shape:24s}" + "".join(f"{'-' if cost is None else format(cost, '.2f'):>10s}" for cost in costs))


if __name__ == "__main__":
    main()
