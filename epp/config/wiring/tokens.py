"""Which backend turns prompts into the engines' token ids, and which producers read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from epp.config.wiring.instances import Declared, Instances
from epp.config.wiring.token_producer import TokenParameters, TokenProducer
from epp.errors import ConfigError
from epp.tokens.plan import RemotePlan, TokenPlan
from scorers.base import Producer


class WiredTokens(NamedTuple):
    """The token plan of a configuration, lines for the start log, and warnings."""

    plan: TokenPlan | None
    summary: tuple[str, ...]
    warnings: tuple[str, ...]


def wire_tokens(instances: Instances, producers: Sequence[Producer[Any]]) -> WiredTokens:
    """Return the backend that tokenizes for ``producers``. Raises: ConfigError with the key path."""
    declared = [d for d in instances if isinstance(d.plugin, TokenProducer) and d.plugin.parameters.tokenizes]
    readers = [producer for producer in producers if producer.reads_tokens]
    if len(declared) > 1:
        raise ConfigError(f"{declared[1].path}: {declared[0].path} tokenizes already; keep one")
    for one in declared:
        plan = _planned(one)
        return WiredTokens(plan, tuple(_describe(one.plugin.name, plan)), tuple(_warnings(one, plan, bool(readers))))
    if not readers:
        return WiredTokens(None, (), ())
    warning = (
        f"{readers[0].name}: nothing tokenizes, so it knows only of prompts that are sent as token ids; declare a "
        "token-producer with vllm or local"
    )
    return WiredTokens(TokenPlan(), (), (warning,))


def _planned(declared: Declared) -> TokenPlan:
    assert isinstance(declared.plugin, TokenProducer)  # noqa: S101
    try:
        plan = declared.plugin.plan()
    except ConfigError as error:
        raise ConfigError(f"{declared.path}.parameters: {error}") from error
    assert plan is not None  # noqa: S101 - only declared producers that tokenize come here
    return plan


def _describe(name: str, plan: TokenPlan) -> Iterator[str]:
    if isinstance(plan.backend, RemotePlan):
        where = plan.backend.url or "the pool's endpoints"
        yield f"tokens: {name} asks {where}, {plan.limits.timeout_s:g} s at most"
        return
    for model, tokenizer in plan.loaded.items():
        cuts = tokenizer.vocabulary.cuts
        where = " and ".join([f"{len(cuts.tokens)} tokens", *(["between words"] if cuts.in_text else [])])
        yield f"tokens: {name} has a tokenizer for {model or 'every model'}; texts are cut at {where}"


def _warnings(declared: Declared, plan: TokenPlan, is_read: bool) -> Iterator[str]:
    for model, tokenizer in plan.loaded.items():
        if tokenizer.no_chats is not None:
            yield f"{declared.path}: chats with {model or 'the model'} are not tokenized: {tokenizer.no_chats}"
        elif not tokenizer.has_template:
            yield f"{declared.path}: chats with {model or 'the model'} are not tokenized: there is no chat template"
    parameters = declared.plugin.parameters
    if isinstance(parameters, TokenParameters) and parameters.vllm is not None and parameters.vllm.mm_timeout:
        yield f"{declared.path}.parameters.vllm.mmTimeout: has no effect: requests with media are not tokenized"
    if not is_read:
        yield f"{declared.path}: {declared.plugin.name!r} counts the prompts' tokens; no plugin here reads the tokens"
