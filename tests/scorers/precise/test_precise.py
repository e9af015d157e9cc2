"""The precise producer: merged sources, the worth of all tiers together, speculation, adapters."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.kvevents.follower.decoding import BlockStored
from epp.parsers.identity import TOKENS, identity
from scorers.base import CachedPrefix, Candidate, Mode, Prompt, Request, Slot, Tier
from scorers.precise.parameters import IndexerConfig, KvCacheBackendConfig, PreciseParameters
from scorers.precise.producer import PrecisePrefixProducer, merged
from scorers.precise.prompts import renamed
from scorers.precise.speculation import Speculation
from scorers.prefix.cache import PrefixCache
from scorers.prefix.scorer import PrefixParameters, PrefixScorer
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


def test_events_count_for_endpoints_that_are_known_and_our_picks_for_the_others() -> None:
    followed = Followed()
    followed.known(0)
    followed.known(1, 0, "gap")
    followed.store(0, TOKENS_A[:64])
    followed.store(1, TOKENS_A[:128])
    followed.pick(followed.ask(prompt(TOKENS_A)), 2)
    gpu = followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer/gpu"]
    assert gpu.total_tokens == 256
    assert gpu.tokens == {0: 64, 2: 256}, "endpoint 1 is not known, and nothing was sent there"
    assert gpu.modes == {0: Mode.PRECISE}
    assert followed.cache.fallbacks == {"not started": 1}


def test_endpoints_are_counted_by_mode() -> None:
    followed = Followed()
    followed.known(0)
    followed.known(1, 0b010)
    gpu, cpu = (fallback.name for fallback in followed.producer.fallbacks)
    assert followed.guess.endpoints_by_mode(gpu) == {Mode.PRECISE: 1, Mode.HORIZON: 0, Mode.APPROXIMATE: 2}
    assert followed.guess.endpoints_by_mode(cpu) == {Mode.PRECISE: 2, Mode.HORIZON: 0, Mode.APPROXIMATE: 1}
    assert followed.guess.mode(Slot(1), cpu) is Mode.PRECISE
    assert followed.guess.mode(Slot(1), gpu) is Mode.APPROXIMATE


def test_a_pick_of_a_known_endpoint_counts_only_with_speculation() -> None:
    followed = Followed()
    followed.known(0)
    followed.pick(followed.ask(prompt(TOKENS_A)), 0)
    assert followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer"].tokens == {}
    assert not followed.cache.fallbacks


def test_a_request_without_token_ids_is_judged_by_our_picks_alone() -> None:
    followed = Followed()
    followed.known(0)
    followed.store(0, TOKENS_A)
    text = Prompt(identity(b"text", "m", ""), array("I", TOKENS_A).tobytes())
    asked = Request("r", "m", "m", prompts=(text,), prompt_tokens=256)
    followed.producer.produce(asked, followed.candidates)
    assert asked.cached["precise-prefix-cache-producer"].tokens == {}
    followed.pick(asked, 0)
    assert followed.cache.fallbacks == {"no tokens": 1}
    again = Request("s", "m", "m", prompts=(text,), prompt_tokens=256)
    followed.producer.produce(again, followed.candidates)
    assert again.cached["precise-prefix-cache-producer"].tokens == {0: 256}


def test_prompts_that_are_sent_as_token_ids_need_no_tokenizer() -> None:
    followed = Followed()
    followed.known(0)
    followed.store(0, TOKENS_A)
    asked = Request("r", "m", "m", prompts=(prompt(TOKENS_A),), prompt_tokens=256)
    followed.producer.produce(asked, followed.candidates)
    assert asked.cached["precise-prefix-cache-producer"].tokens == {0: 256}


def test_the_tiers_of_an_endpoint_may_be_known_in_different_ways() -> None:
    followed = Followed()
    followed.known(0, 0b001)
    followed.store(0, TOKENS_A[:32])
    followed.store(0, TOKENS_A, "CPU")
    cached = followed.ask(prompt(TOKENS_A)).cached
    assert (cached["precise-prefix-cache-producer/gpu"].tokens, cached["precise-prefix-cache-producer/cpu"].tokens) == (
        {0: 32},
        {},
    )


def test_each_token_counts_by_the_best_tier_that_holds_it_and_is_not_rounded() -> None:
    followed = Followed()
    for source in range(3):
        followed.known(source)
    followed.store(0, TOKENS_A[:64])
    followed.store(0, TOKENS_A[:192], "CPU")
    followed.store(1, TOKENS_A[:16], "CPU")
    followed.store(2, TOKENS_A, "STORAGE")
    asked = followed.ask(prompt(TOKENS_A))
    worth = asked.cached["precise-prefix-cache-producer"].worth
    assert worth == pytest.approx({0: 64 + 0.8 * 128, 1: 0.8 * 16})
    scorer = PrefixScorer(PrefixParameters(prefix_match_info_producer_name="precise-prefix-cache-producer"))
    scores = scorer.score(asked, followed.candidates)
    assert scores == pytest.approx([(64 + 0.8 * 128) / 256, 0.8 * 16 / 256, 0.0])
    of_one_tier = PrefixScorer(PrefixParameters(prefix_match_info_producer_name="precise-prefix-cache-producer/cpu"))
    assert of_one_tier.score(asked, followed.candidates) == pytest.approx([192 / 256, 16 / 256, 0.0])


def test_weights_are_as_written_and_a_tier_without_one_is_worth_nothing() -> None:
    backends = (KvCacheBackendConfig("storage", 0.5), KvCacheBackendConfig("GPU", 0.9))
    followed = Followed(PreciseParameters(indexer_config=IndexerConfig(kv_cache_backend_configs=backends)))
    followed.known(0)
    followed.store(0, TOKENS_A[:16])
    followed.store(0, TOKENS_A[:64], "CPU")
    followed.store(0, TOKENS_A[:32], "STORAGE")
    worth = followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer"].worth
    assert worth == pytest.approx({0: 0.9 * 16 + 0.5 * 16})


def test_an_adapter_differs_from_the_base_model_and_a_salt_from_none() -> None:
    followed = Followed()
    for source in range(3):
        followed.known(source)
    followed.store(0, TOKENS_A)
    followed.store(1, TOKENS_A, lora_name="lora-1")
    followed.store(2, TOKENS_A, extra_keys=[["pepper"]])
    followed.cache.adapter("lora-1")

    def holders(*asked: Prompt) -> set[int]:
        return set(followed.ask(*asked).cached["precise-prefix-cache-producer"].tokens)

    assert holders(prompt(TOKENS_A, "any-name-of-the-base")) == {0}
    assert holders(prompt(TOKENS_A, "lora-1")) == {1}
    assert holders(prompt(TOKENS_A, "any-name-of-the-base", "pepper")) == {2}
    assert holders(prompt(TOKENS_A, "any-name-of-the-base", "salt")) == set()


def test_an_identity_is_named_as_events_name_it() -> None:
    assert renamed(identity(TOKENS, "m", "s")) == identity(TOKENS, "", "s")
    assert renamed(identity(TOKENS, "é", "x" * 300)) == identity(TOKENS, "", "x" * 300)
    assert renamed(identity(TOKENS, "é", "s"), frozenset({"é"})) == identity(TOKENS, "é", "s")


def test_several_prompts_of_a_request_are_summed() -> None:
    followed = Followed()
    followed.known(0)
    followed.store(0, TOKENS_A[:64])
    cached = followed.ask(prompt(TOKENS_A), prompt(TOKENS_A[:80])).cached["precise-prefix-cache-producer/gpu"]
    assert (cached.total_tokens, cached.tokens) == (256 + 80, {0: 128})


def test_a_tier_that_is_full_of_reported_blocks_is_known_even_if_events_were_missed() -> None:
    followed = Followed()
    followed.candidates[0] = Candidate(Slot(0), "10.0.0.0:8000", block_tokens=16, gpu_blocks=20)
    followed.cache.engine_reported(followed.candidates[0])
    followed.store(0, TOKENS_A)
    followed.cache.update_status(0, "joined late", 0, (303, 9, 0))
    assert followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer/gpu"].modes == {}
    followed.cache.update_status(0, "joined late", 0, (304, 9, 0))
    cached = followed.ask(prompt(TOKENS_A)).cached
    assert cached["precise-prefix-cache-producer/gpu"].modes == {0: Mode.PRECISE}
    assert cached["precise-prefix-cache-producer/gpu"].tokens == {0: 256}
    assert cached["precise-prefix-cache-producer/cpu"].modes == {}, "its capacity is unknown"
    followed.cache.update_status(0, "not connected", 0, (304, 9, 0), live=False)
    assert followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer/gpu"].modes == {}


@pytest.mark.parametrize("length", [1, 16, 17, 32, 255, 256])
def test_the_last_token_of_a_prompt_is_computed_so_a_block_that_ends_with_it_is_no_hit(length: int) -> None:
    followed = Followed()
    followed.known(0)
    followed.store(0, TOKENS_A)
    asked = followed.ask(bare(TOKENS_A[:length]))
    cached = asked.cached["precise-prefix-cache-producer"]
    usable = (length - 1) // 16 * 16
    assert (cached.total_tokens, cached.tokens) == (usable, {0: usable} if usable else {})
    scorer = PrefixScorer(PrefixParameters(prefix_match_info_producer_name="precise-prefix-cache-producer"))
    assert scorer.score(asked, followed.candidates) == [float(usable > 0), 0.0, 0.0], (
        "no endpoint can hold more than that"
    )


def test_a_guess_is_taken_as_the_share_of_the_prompt_that_it_is() -> None:
    guess = CachedPrefix(Tier.GPU, 100, {Slot(0): 50, Slot(1): 50}, {Slot(1): Mode.HORIZON})
    best = merged(Tier.GPU, 300, {Slot(0): 16}, {Slot(0): Mode.PRECISE}, guess)
    assert best.tokens == {0: 16, 1: 150}
    assert best.modes == {0: Mode.PRECISE, 1: Mode.HORIZON}


def speculating() -> Followed:
    followed = Followed(PreciseParameters(speculative_indexing=True))
    followed.known(0)
    followed.known(1)
    return followed


def test_a_pick_counts_at_once_and_for_its_lifetime() -> None:
    followed = speculating()
    followed.pick(followed.ask(prompt(TOKENS_A)), 0)
    longer = prompt([*TOKENS_A[:100], *TOKENS_A])
    assert followed.ask(longer).cached["precise-prefix-cache-producer"].tokens == {0: 96}
    assert followed.ask(longer).cached["precise-prefix-cache-producer"].modes == {0: Mode.PRECISE, 1: Mode.PRECISE}
    followed.now = 2.0
    assert followed.ask(longer).cached["precise-prefix-cache-producer"].tokens == {}


def test_the_end_of_one_pick_takes_nothing_from_a_later_one_of_the_same_prompt() -> None:
    followed = speculating()
    followed.pick(followed.ask(prompt(TOKENS_A)), 0)
    followed.now = 1.5
    followed.pick(followed.ask(prompt(TOKENS_A)), 0)
    followed.now = 2.5
    assert followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer"].tokens == {0: 256}
    followed.now = 3.5
    assert followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer"].tokens == {}


def test_what_is_speculated_are_whole_blocks_of_the_endpoint() -> None:
    followed = speculating()
    for slot, block_tokens in enumerate((64, 24)):
        followed.candidates[slot] = Candidate(
            Slot(slot), f"10.0.0.{slot}:8000", block_tokens=block_tokens, gpu_blocks=1000
        )
        followed.cache.engine_reported(followed.candidates[slot])
        followed.pick(followed.ask(prompt(TOKENS_A)), slot)
    held = followed.ask(prompt(TOKENS_A[:100])).cached["precise-prefix-cache-producer"].tokens
    assert held == {0: 64, 1: 96}
    assert followed.ask(bare(TOKENS_A[:96])).cached["precise-prefix-cache-producer"].tokens == {0: 64, 1: 72}


def test_an_endpoint_that_gets_the_slot_of_another_is_not_taken_for_it() -> None:
    followed = speculating()
    followed.pick(followed.ask(prompt(TOKENS_A)), 0)
    followed.cache.endpoint_added(followed.candidates[0])
    followed.known(3)
    assert followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer"].tokens == {}


STEP = st.tuples(
    st.sampled_from(["add", "add", "look", "wait", "forget"]),
    st.lists(st.integers(0, 1), min_size=1, max_size=8),
    st.integers(0, 2),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_speculation_is_the_longest_beginning_of_any_recent_pick(steps: list[tuple[str, list[int], int]]) -> None:
    speculation, now = Speculation(10.0, 1), 0.0
    model: list[tuple[float, int, list[int]]] = []
    for what, tokens, slot in steps:
        if what == "add":
            speculation.add(bare(tokens), Slot(slot), now)
            model.append((now + 10.0, slot, tokens))
        elif what == "wait":
            now += 1.0 + slot
        elif what == "forget":
            speculation.forget(Slot(slot))
            model = [each for each in model if each[1] != slot]
        model = [each for each in model if each[0] > now]
        expected: dict[int, int] = {}
        for _, whose, sent in model:
            common = next((n for n, (a, b) in enumerate(zip(sent, tokens, strict=False)) if a != b), None)
            shared = min(len(sent), len(tokens)) if common is None else common
            if shared:
                expected[whose] = max(expected.get(whose, 0), shared)
        assert speculation.held(bare(tokens), now) == expected
        assert len(speculation) == len(model)
