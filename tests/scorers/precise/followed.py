"""A precise producer that follows endpoints, whose events tests create."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from epp.kvevents.follower.decoding import BlockStored
from epp.parsers.identity import TOKENS, identity
from scorers.base import Candidate, Prompt, Request, Slot
from scorers.precise.parameters import PreciseParameters
from scorers.precise.producer import PrecisePrefixProducer
from scorers.prefix.cache import PrefixCache
from tests.epp.kvevents.fleet import Fleet

TOKENS_A = list(range(256))
ALL = 0b111


def bare(tokens: Sequence[int], model: str = "m", salt: str = "") -> Prompt:
    return Prompt(identity(TOKENS, model, salt), array("I", tokens).tobytes())


def prompt(tokens: Sequence[int], model: str = "m", salt: str = "") -> Prompt:
    """Return a prompt with one more token, since the last token is never a cache hit."""
    return bare([*tokens, 999], model, salt)


def request(*prompts: Prompt) -> Request:
    return Request("r", "m", "m", prompts=prompts, tokens=prompts, prompt_tokens=256)


class NoFeed:
    def follow(self, source: int, candidate: Candidate) -> None:
        pass

    def unfollow(self, source: int) -> None:
        pass


class Followed:
    """A producer with three endpoints whose events the test creates."""

    def __init__(self, parameters: PreciseParameters | None = None) -> None:
        self.now = 0.0
        self.producer = PrecisePrefixProducer(parameters)
        self.cache = self.producer.new_cache(lambda: self.now)
        self.guess = PrefixCache(self.producer.fallbacks)
        self.candidates = [Candidate(Slot(n), f"10.0.0.{n}:8000", block_tokens=16, gpu_blocks=1000) for n in range(3)]
        self.fleet = Fleet(3)
        self.cache.index = self.fleet.index
        self.cache.feed = NoFeed()
        for candidate in self.candidates:
            self.cache.endpoint_added(candidate)
            self.guess.endpoint_added(candidate)

    def known(self, source: int, known: int = ALL, why: str = "") -> None:
        self.cache.update_status(source, why, known, (0, 0, 0), 0, 0)

    def store(self, source: int, tokens: Sequence[int], medium: str = "GPU", **more: object) -> None:
        names = [hash((*tokens[: n + 16], more.get("lora_name"))) & (1 << 60) - 1 for n in range(0, len(tokens), 16)]
        self.fleet.say(source, BlockStored(names, None, list(tokens), 16, medium=medium, **more))  # type: ignore[arg-type]

    def ask(self, *prompts: Prompt) -> Request:
        asked = request(*prompts)
        self.producer.produce(asked, self.candidates)
        return asked

    def pick(self, asked: Request, slot: int) -> None:
        self.producer.picked(asked, self.candidates[slot])
