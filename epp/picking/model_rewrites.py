"""Which model an engine is asked for, when the configuration says another than the client.

A rule for the very model beats one for all, the first listed wins among equals, and a rule beats the client's rewrite
header. Targets are drawn by weight. Source: llm-d's ``InferenceModelRewrite`` (v1alpha2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from random import Random

import msgspec

from epp.metrics.gauges import Reading
from epp.metrics.series import Names
from epp.parsers.base import Parsed, Reader
from epp.parsers.rewrite import with_model


@dataclass(frozen=True, slots=True)
class Rule:
    """Where requests for some model go; at least one target has a weight above 0."""

    rewrite: str
    """The name of the rewrite that it is written in; a label of the count."""
    targets: tuple[str, ...]
    weights: tuple[int, ...]


class Drawing:
    """Draws a rule's target. Owner: the event loop."""

    def __init__(self, rule: Rule, random: Random) -> None:
        self.rewrite = rule.rewrite
        self._random = random
        self._targets = [target for target, weight in zip(rule.targets, rule.weights, strict=True) if weight]
        self._bounds = list(accumulate(weight for weight in rule.weights if weight))

    def __call__(self) -> str:
        """One of the targets."""
        if len(self._targets) == 1:
            return self._targets[0]
        return self._random.choices(self._targets, cum_weights=self._bounds)[0]


class Named(msgspec.Struct):
    """As much of a request body as names its model."""

    model: str | None = None


NAMED = msgspec.json.Decoder(Named)


class ModelRewrites:
    """The rules, and how often each was followed. Owner: the event loop."""

    def __init__(self, exact: Mapping[str, Rule], generic: Rule | None, random: Random) -> None:
        self.decisions: Counter[tuple[str, str, str]] = Counter()
        """By the rewrite's name, the client's model (one of a bounded number) and the target."""
        self._exact = {model: Drawing(rule, random) for model, rule in exact.items()}
        self._generic = Drawing(generic, random) if generic is not None else None
        self._names = Names()
        self._random = random

    def __bool__(self) -> bool:
        return bool(self._exact) or self._generic is not None

    def count_on(self, before: ModelRewrites) -> None:
        """Go on with the count of the rules that these replace."""
        self.decisions, self._names = before.decisions, before._names

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Forget what is counted meanwhile: of requests that are only talked about."""
        before = self.decisions, self._names
        self.decisions, self._names = Counter(), Names()
        try:
            yield
        finally:
            self.decisions, self._names = before

    def readings(self) -> Iterator[Reading]:
        """Return how often each rule was followed, for ``Telemetry.gauge_source``."""
        yield Reading(
            "llm_d_epp_model_rewrite_decisions",
            "Requests that follow a rewrite rule.",
            ("model_rewrite_name", "model_name", "target_model"),
            self.decisions.items(),
            counter=True,
        )

    def rule_for(self, model: str) -> Drawing | None:
        """Where requests for ``model`` go (empty: none was named); None where no rule is about it."""
        return self._exact.get(model, self._generic)

    def followed(self, rule: Drawing, model: str, target: str) -> None:
        """Count that a request for ``model`` goes to ``target``."""
        self.decisions[rule.rewrite, self._names.bounded(model), target] += 1


class RewritingParser:
    """Another reader, whose requests follow ``rewrites``. Bodies that are not JSON objects are left to it alone."""

    def __init__(self, parser: Reader, rewrites: ModelRewrites) -> None:
        self.rewrites = rewrites
        self._parser = parser

    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        """As the reader below does, with the model that a rule names. Raises: BadRequest."""
        try:
            model = NAMED.decode(body).model or ""
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._parser.parse(path, body, target_model)  # which says what is wrong with it
        rule = self.rewrites.rule_for(model)
        if rule is None:
            return self._parser.parse(path, body, target_model)
        target = rule()
        named = body if model else with_model(body, target)
        parsed = self._parser.parse(path, named, target)
        if not parsed.target_model:  # read by nobody, or by an API without models: to be left as it is
            return parsed
        if not model:
            parsed = msgspec.structs.replace(parsed, model="", body=named)
        self.rewrites.followed(rule, model, target)
        return parsed


def following(rewrites: ModelRewrites, parser: Reader) -> Reader:
    """``parser``, following ``rewrites`` where there are any."""
    return RewritingParser(parser, rewrites) if rewrites else parser
