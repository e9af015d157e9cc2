"""The precise producer: merged sources, the worth of all tiers together, adapters."""

from __future__ import annotations

from array import array

import pytest

from epp.parsers.identity import TOKENS, identity
from scorers.base import CachedPrefix, Candidate, Mode, Prompt, Request, Slot, Tier
from scorers.precise.parameters import IndexerConfig, KvCacheBackendConfig, PreciseParameters
from scorers.precise.producer import merged
from scorers.precise.prompts import renamed
from scorers.prefix.scorer import PrefixParameters, PrefixScorer
from tests.scorers.precise.followed import TOKENS_A, Followed, bare, prompt


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
