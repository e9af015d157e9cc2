"""Load that never repeats: prompts, LoRAs and fairness ids come and go, and so do endpoints.

A conversation grows by a turn with each of its requests and ends after a random number of turns; shared system
prompts, adapters and tenants are replaced by new ones with new names all the time. A seeded generator draws each step.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from typing_extensions import override

from benchmarks.rig.load import Client, Tally

WORDS = ["cache", "tier", "prefix", "token", "block", "route", "score", "engine", "batch", "queue", "prompt", "answer"]


class Churn:
    """The requests of clients. A new LoRA, tenant and system prompt replace old ones every few requests."""

    def __init__(self, seed: int, *, systems: int = 30, loras: int = 8, tenants: int = 20, sessions: int = 100) -> None:
        self._random = random.Random(seed)
        self._made = 0
        self._systems = [self._text(300) for _ in range(systems)]
        self._loras = [self._name("lora") for _ in range(loras)]
        self._tenants = [self._name("tenant") for _ in range(tenants)]
        self._sessions = [self._session() for _ in range(sessions)]

    def requests(self) -> Iterator[bytes]:
        """Yield POSTs of growing conversations without end."""
        draw = self._random
        while True:
            for share, names, kind in ((0.01, self._loras, "lora"), (0.02, self._tenants, "tenant")):
                if draw.random() < share:
                    names[draw.randrange(len(names))] = self._name(kind)
            if draw.random() < 0.02:
                self._systems[draw.randrange(len(self._systems))] = self._text(300)
            at = draw.randrange(len(self._sessions))
            if len(self._sessions[at]) > draw.randrange(4, 12):
                self._sessions[at] = self._session()
            session = self._sessions[at]
            session.append({"role": "user" if len(session) % 2 else "assistant", "content": self._text(40)})
            model = draw.choice(["base", *self._loras])
            yield self._post({"model": model, "messages": session}, draw.choice(self._tenants))

    def names(self, limit: int = 1000) -> Iterator[bytes]:
        """Yield short POSTs without end, each with another pair of ``limit`` LoRAs and as many tenants."""
        for number in count():
            pair = number % limit, (number + number // limit) % limit
            session = [{"role": "user", "content": self._text(10)}]
            yield self._post({"model": f"filling-lora-{pair[0]}", "messages": session}, f"filling-tenant-{pair[1]}")

    def _session(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self._random.choice(self._systems)}]

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"

    def _text(self, words: int) -> str:
        self._made += 1
        return f"{self._made} " + " ".join(self._random.choices(WORDS, k=words))

    def _post(self, body: dict[str, object], tenant: str) -> bytes:
        content = json.dumps(body).encode()
        lines = ["POST /v1/chat/completions HTTP/1.1", "host: soak", "content-type: application/json"]
        lines += [f"x-llm-d-inference-fairness-id: {tenant}", f"content-length: {len(content)}", "", ""]
        return "\r\n".join(lines).encode() + content


class Pacing(Client):
    """A client that pauses before each request, and whose responses count in its current ``tally``."""

    think_s = 0.0

    @override
    def send(self) -> None:
        asyncio.get_running_loop().call_later(self.think_s, self._ask)

    def _ask(self) -> None:
        self.began = time.perf_counter()
        if self.transport.is_closing() or self.began >= self.deadline:
            self.transport.close()
        else:
            self.transport.write(next(self.requests))


def fresh_tally(clients: Sequence[Pacing]) -> Tally:
    """Let ``clients`` count in a new tally from now on, and return it."""
    tally = Tally()
    for client in clients:
        client.tally = tally
    return tally


class ChangingEndpoints:
    """A watched file whose list of endpoints changes with each ``step``: endpoints come, go, and get other names."""

    def __init__(self, file: Path, addresses: Sequence[str], seed: int) -> None:
        self._file = file
        self._addresses = list(addresses)
        self._random = random.Random(seed)
        self._listed = set(self._addresses[: len(self._addresses) * 2 // 3])
        self.changes = 0
        self._write()

    def step(self) -> None:
        """Remove one endpoint, add another, and rename all."""
        away = [address for address in self._addresses if address not in self._listed]
        self._listed.remove(self._random.choice(sorted(self._listed)))
        self._listed.add(self._random.choice(away))
        self.changes += 1
        self._write()

    def _write(self) -> None:
        entries = []
        for address in sorted(self._listed):
            host, _, port = address.rpartition(":")
            name = f"engine-{self.changes}-{host}"
            entries.append({"name": name, "address": host, "port": port, "labels": {"step": str(self.changes)}})
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps({"endpoints": entries}))
        unfinished.rename(self._file)
