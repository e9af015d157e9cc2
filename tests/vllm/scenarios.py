"""Prompts, and the tokens that an engine without the connector generates for them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.vllm.engine import BLOCK_TOKENS, Engine, Tokens, prompts
from tests.vllm.model import VOCABULARY

SHARED = (1, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 193)
"""Tokens that prompts share: up to the middle or the end of a block, or of a chunk."""


@dataclass(frozen=True)
class Scenario:
    """Prompts that are sent at once, and how many tokens are generated for each."""

    prompts: list[Tokens]
    max_tokens: int = 8
    one_by_one: bool = False


def aligned(seed: int, length: int = 230) -> list[Tokens]:
    """Return a prompt, and prompts that share with it every number of tokens that could be special."""
    random = Random(seed)
    first = [random.randrange(10, VOCABULARY) for _ in range(length)]
    return [first, *(first[:shared] + prompts(1, length - shared, seed=seed + shared)[0] for shared in SHARED)]


SCENARIOS = {
    "few": Scenario(prompts(4, 700)),
    "crowd": Scenario(prompts(16, 300, shared=100, seed=1), max_tokens=40),
    "aligned": Scenario(aligned(2), max_tokens=6, one_by_one=True),
    "lengths": Scenario([prompts(1, length, seed=length)[0] for length in
                         (1, 2, 31, 32, 33, 63, 64, 65, 66, 127, 128, 129, 256, 257, 513)]),
    "single": Scenario(prompts(1, 600, seed=5)),
    "other": Scenario(prompts(1, 600, seed=6)),
    "talk": Scenario(prompts(1, 400, seed=8), max_tokens=80),
    "third": Scenario(prompts(2, 500, seed=7)),
}  # fmt: skip


def tokens(engine: Engine, name: str) -> list[Tokens]:
    """Return the tokens that an engine generates for a scenario."""
    scenario = SCENARIOS[name]
    if scenario.one_by_one:
        return [engine.generate([prompt], scenario.max_tokens)[0] for prompt in scenario.prompts]
    return engine.generate(scenario.prompts, scenario.max_tokens)


Expected = dict[str, list[Tokens]]
"""The expected tokens by scenario."""


def run_all(engine: Engine) -> Expected:
    """Run every scenario, and a second turn after the first one's answer."""
    found = {name: tokens(engine, name) for name in SCENARIOS}
    found["turn"] = engine.generate(second_turn(found), 8)
    return found


def second_turn(expected: Expected) -> list[Tokens]:
    """Return the prompt and the answer of ``talk`` with more tokens, as the next prompt."""
    return [prompt + answer for prompt, answer in zip(SCENARIOS["talk"].prompts, expected["talk"], strict=True)]


def kept(length: int, chunk: int) -> int:
    """Return how many tokens of a prompt are in whole chunks, with one token left to compute."""
    return (length - 1) // BLOCK_TOKENS * BLOCK_TOKENS // chunk * chunk
