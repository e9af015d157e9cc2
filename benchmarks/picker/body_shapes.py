"""Does any request body stop the picker for long, whatever it is made of?

Bodies that a client made expensive on purpose, with a model name to be rewritten: three sizes, and the largest body
that is accepted (up to 31 MiB) where a limit refuses larger ones. An ``r`` marks a refusal, which takes time, too. CPU
time of this thread, best of three. Run: ``python -m benchmarks.picker.body_shapes [--json]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time

from epp.errors import BadRequest
from epp.parsers import PARSERS, ByPath
from epp.parsers.grpc_body import frame
from epp.parsers.vllmgrpc import GENERATE

MIB = 1 << 20
SIZES = (1, 4, 31)
CHAT, COMPLETION, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
RESPONSES = "/v1/responses"

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
    "four media a part": (
        CHAT, b'{"model":"m","messages":[{"content":[', b'{"uuid":1,"file":1,"thinking":1,"file_id":1},', b'""]}]}',
    ),
    "an image a part": (CHAT, b'{"model":"m","messages":[{"content":[', b'{"image_url":"a"},', b'""]}]}'),
    "text parts": (CHAT, b'{"model":"m","messages":[{"content":[', b'{"text":"a"},', b'""]}]}'),
    "unknown parts": (CHAT, b'{"model":"m","messages":[{"content":[', b'{"a":1},', b'{}]}]}'),
    "items": (RESPONSES, b'{"model":"m","input":[', b'{"type":"x","call_id":"a","output":1},', b"{}]}"),
    "text blocks": (
        MESSAGES, b'{"model":"m","messages":[{"role":"user","content":[', b'{"type":"text","text":"a"},', b"{}]}]}",
    ),
    "tools": (CHAT, b'{"model":"m","messages":[{"content":"x"}],"tools":[', b'{"a":["b"]},', b"{}]}"),
    "models deeper": (COMPLETION, b'{"model":"m","prompt":"x","z":[', b'{"model":1},', b"1]}"),
    "minified code": (COMPLETION, b'{"model":"m","prompt":"', b'if(a){b[c]=\\"x\\";d(e,f)}\\n', b'"}'),
    "code, and models deeper": (
        COMPLETION, b'{"model":"m","z":{"model":1},"prompt":"', b'if(a){b[c]=\\"x\\";d(e,f)}', b'"}',
    ),
    "backslashes": (COMPLETION, b'{"model":"m","prompt":"', b"\\\\", b'"}'),
    "one image": (CHAT, b'{"model":"m","messages":[{"content":[{"image_url":"', b"iVBORw0KGgo", b'"}]}]}'),
    "hashes by gRPC": (GENERATE, b"\x1a\x02\x08\x01", b"\x32\x02\x1a\x00", b""),
    "token ids by gRPC": (GENERATE, b"", b"\x1a\x06\x12\x04\1\1\1\1", b""),
    "deep, unknown": (COMPLETION, b'{"model":"m","prompt":"x","z":', b"[", b""),
}  # fmt: skip


def body_of(shape: str, count: int) -> tuple[str, bytes]:
    """Return path and body of a shape, with its filler ``count`` times."""
    path, before, filler, after = SHAPES[shape]
    body = before + filler * count + after
    return path, frame(body) if path == GENERATE else body


def cost(parsers: ByPath, shape: str, count: int) -> tuple[float, bool]:
    """Return the CPU milliseconds of parsing, and whether the body is accepted."""
    path, body = body_of(shape, count)
    best, is_read = float("inf"), True
    for _ in range(3):
        gc.collect()
        began = time.thread_time()
        try:
            parsers.parse(path, body, "another")
        except BadRequest:
            is_read = False
        best = min(best, time.thread_time() - began)
    return best * 1000, is_read


def largest(parsers: ByPath, shape: str) -> int:
    """Return the number of fillers in the largest body that is accepted."""
    path, filler = SHAPES[shape][0], SHAPES[shape][2]
    read, refused = 0, SIZES[-1] * MIB // len(filler) + 1
    while refused - read > 1:
        middle = (read + refused) // 2
        try:
            parsers.parse(path, body_of(shape, middle)[1], "another")
            read = middle
        except BadRequest:
            refused = middle
    return read


def main() -> None:
    """Print the table, or JSON."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true")
    as_json = arguments.parse_args().json
    parsers = ByPath([parser() for parser in PARSERS])
    rows: dict[str, list[tuple[float, float, bool]]] = {}
    for shape, (_, _, filler, _) in SHAPES.items():
        counts = [mib * MIB // len(filler) for mib in SIZES] + [largest(parsers, shape)]
        rows[shape] = [(count * len(filler) / MIB, *cost(parsers, shape, count)) for count in counts]
    if as_json:
        print(json.dumps({"mib_ms_read": rows, "python": platform.python_version()}))
        return
    print(f"CPU ms for a body; r: refused; CPython {platform.python_version()}")
    print(f"{'made of':24s}" + "".join(f"{mib:>6d} MiB" for mib in SIZES) + "   the largest that is read")
    for shape, costs in rows.items():
        cells = [f"{ms:.1f}{' ' if is_read else 'r'}" for _, ms, is_read in costs]
        print(f"{shape:24s}" + "".join(f"{cell:>10s}" for cell in cells) + f" {costs[-1][0]:>10.2f} MiB")
    print(f"the most of all: {max(ms for costs in rows.values() for _, ms, _ in costs):.1f} ms")


if __name__ == "__main__":
    main()
