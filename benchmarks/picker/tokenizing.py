"""What does it cost to turn a chat into token ids, and how much less when its beginning was seen before?

A conversation of turns of 2 KB each, with a byte-level BPE of 16,000 tokens trained here, on words by Zipf's law. The
baseline is the direct way: decode the body, fill the template, encode the whole text. Beside it: the first time, the
same again, and the next turn (8 KB more, whose baseline is its whole text). CPU time of all threads, medians. Then the
wall time of handing work to a thread, and how late the event loop is while a thread tokenizes.
Run: ``python -m benchmarks.picker.tokenizing [--json]``; needs the extra ``precise``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from statistics import median

from tokenizers import pre_tokenizers, trainers

from benchmarks.rig.machine import machine
from epp.tokens.local import LocalSource
from epp.tokens.model.answer import Answer
from epp.tokens.model.model import ModelTokenizer
from epp.tokens.model.segments import Segments
from epp.tokens.source import TokenRequest
from tests.epp.tokens.trained import CHATML, CL100K, byte_level, split

SIZES = (1, 12, 120, 400)
"""Sizes of the request body in KB."""
TURN_CHARACTERS = 2000
VOCABULARY = 16_000
WORDS = 30_000
CHAT = "/v1/chat/completions"
SYLLABLES = "ba be bo da de fa ga ge ha ka ke la le lo ma me mi na ne no pa pe ra re ri sa se so ta te ti tion ing er"


def words(random: Random) -> list[str]:
    """Return WORDS random words, about as many as a language uses."""
    return ["".join(random.choices(SYLLABLES.split(), k=random.choice((1, 2, 2, 3, 3, 4)))) for _ in range(WORDS)]


def text(random: Random, known: list[str], characters: int) -> str:
    """Return words by Zipf's law, with commas, ends of sentences and numbers."""
    out, length = [], 0
    while length < characters:
        word = known[min(WORDS - 1, int(random.paretovariate(0.9)) - 1)]
        kind = random.random()
        word += ",\n" if kind < 0.02 else ". " if kind < 0.1 else f" {random.randrange(10**6)} " if kind < 0.12 else " "
        out.append(word)
        length += len(word)
    return "".join(out)[:characters]


def make(folder: Path) -> Path:
    """Train a tokenizer, write it to ``folder`` and return the folder."""
    random = Random(1)
    known = words(random)
    tokenizer = byte_level(split(CL100K))
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<|im_start|>", "<|im_end|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator([text(random, known, 500_000) for _ in range(4)], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return folder


class Conversations:
    """Makes new conversations, as turns and as request bodies."""

    def __init__(self) -> None:
        self._random = Random(2)
        self._words = words(Random(1))

    def turns(self, kilobytes: int) -> list[dict[str, str]]:
        """Return turns with a total size of ``kilobytes``."""
        left, turns = kilobytes * 1000, []
        while left > 0:
            size = min(left, TURN_CHARACTERS)
            role = "assistant" if len(turns) % 2 else "user"
            turns.append({"role": role, "content": text(self._random, self._words, size)})
            left -= size
        return turns

    def body(self, turns: list[dict[str, str]]) -> bytes:
        """Return the request body of ``turns``."""
        return json.dumps({"model": "m", "messages": turns}).encode()


def timed(work: Callable[[], object]) -> float:
    """Return the CPU milliseconds of ``work``, all threads."""
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def tokenize(model: ModelTokenizer, body: bytes) -> tuple[bytes, ...]:
    """Tokenize ``body`` as the picker's token source does."""
    texts = model.texts(CHAT, body, 1)
    partly = model.look_up(texts)
    return model.put_together(texts, partly, model.encode(partly))


def plainly(model: ModelTokenizer, body: bytes) -> list[bytes]:
    """Tokenize the whole text of ``body`` at once."""
    return model.vocabulary.encode([text.text for text in model.texts(CHAT, body, 1)])


def row(model: ModelTokenizer, made: Conversations, kilobytes: int) -> dict[str, float]:
    """Return the medians in milliseconds, and the number of tokens."""
    times: dict[str, list[float]] = {"whole": [], "first": [], "again": [], "turn": [], "whole turn": []}
    tokens = []
    for _ in range(max(5, 200 // kilobytes)):
        turns = made.turns(kilobytes)
        body, more = made.body(turns), made.body([*turns, *made.turns(8)])
        times["whole"].append(timed(lambda body=body: plainly(model, body)))
        times["first"].append(timed(lambda body=body: tokenize(model, body)))
        times["again"].append(timed(lambda body=body: tokenize(model, body)))
        times["turn"].append(timed(lambda more=more: tokenize(model, more)))
        times["whole turn"].append(timed(lambda more=more: plainly(model, more)))
        (whole,), (ours,) = plainly(model, more), tokenize(model, more)
        if whole != ours:
            raise AssertionError("the pieces' tokens are not the whole's")
        tokens.append(len(ours) // 4)
    return {name: median(values) for name, values in times.items()} | {"tokens": median(tokens)}


async def handed_over(model: ModelTokenizer) -> float:
    """Return the milliseconds until a thread has tokenized a minimal chat and its result has arrived."""
    source = LocalSource({"": model}, at_once_bytes=0)
    times = []
    body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
    for _ in range(500):
        heard: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        source.later(TokenRequest(CHAT, body, "m", 1), heard.set_result)
        await heard
        times.append((time.perf_counter() - began) * 1000)
    await source.close()
    return median(times)


async def lateness(model: ModelTokenizer, bodies: Iterator[bytes] | None, seconds: float) -> tuple[float, float]:
    """Return how late a timer of 1 ms is while a thread tokenizes ``bodies``: median and p99 in ms."""
    source = LocalSource({"": model}, threads=1, at_once_bytes=0)
    until = time.perf_counter() + seconds
    busy = True

    async def tokenizing() -> None:
        nonlocal busy
        if bodies is None:
            await asyncio.sleep(seconds)
        while bodies is not None and time.perf_counter() < until:
            heard: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            source.later(TokenRequest(CHAT, next(bodies), "m", 1), heard.set_result)
            await heard
        busy = False

    late = []
    worker = asyncio.ensure_future(tokenizing())
    while busy:
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append((time.perf_counter() - began) * 1000 - 1)
    await worker
    await source.close()
    late.sort()
    return late[len(late) // 2], late[int(len(late) * 0.99)]


def fresh(made: Conversations, kilobytes: int) -> Iterator[bytes]:
    """Yield bodies with new text, made beforehand."""
    return itertools.cycle([made.body(made.turns(kilobytes)) for _ in range(20)])


def held_up(model: ModelTokenizer, made: Conversations, seconds: float) -> dict[str, tuple[float, float]]:
    """Return median and p99 of the lateness, by the concurrent work."""
    found = {"nothing else": asyncio.run(lateness(model, None, seconds))}
    for size in (120, 400):
        model.segments = Segments(1)  # nothing is known
        found[f"new chats of {size} KB"] = asyncio.run(lateness(model, fresh(made, size), seconds))
    return found


def main() -> None:
    """Print all tables, or JSON."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true")
    as_json = arguments.parse_args().json
    with tempfile.TemporaryDirectory() as folder:
        model = ModelTokenizer(make(Path(folder)), 256 << 20)
    made = Conversations()
    rows = {size: row(model, made, size) for size in SIZES}
    over = asyncio.run(handed_over(model))
    late = held_up(model, made, 4.0)
    if as_json:
        print(json.dumps({"ms": rows, "handing_over_ms": over, "late_ms": late, "machine": machine()}))
        return
    print(f"ms for a chat, and shares of encoding the whole; {machine()}")
    print(
        f"{'body':>7s}{'tokens':>9s}{'the whole':>12s}{'first time':>14s}{'the same again':>18s}{'the next turn':>17s}"
    )
    for size, ms in rows.items():
        bases = {"first": "whole", "again": "whole", "turn": "whole turn"}
        cells = [f"{ms[name]:8.2f} {ms[name] / ms[base]:4.0%}" for name, base in bases.items()]
        print(f"{size:>4d} KB{ms['tokens']:>9.0f}{ms['whole']:>12.2f}{cells[0]:>15s}{cells[1]:>17s}{cells[2]:>17s}")
    print(f"\nhanding over to a thread and hearing of it: {over:.3f} ms")
    print("\na timer of the event loop is late, while a thread tokenizes, by")
    for name, (middle, p99) in late.items():
        print(f"  {name:24s} median {middle:6.2f} ms   p99 {p99:6.2f} ms")


if __name__ == "__main__":
    main()
