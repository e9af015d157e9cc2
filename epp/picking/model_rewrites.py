"""Rewrite rules: the model that an engine is sent instead of the one that the client named.

A rule for one model has precedence over a rule for all models, a rule of the configuration over one of a custom
resource for the same, and a rule over the client's rewrite header. Rules are applied once: a target is not matched
again. Targets are drawn by weight. Source: llm-d's ``InferenceModelRewrite`` (v1alpha2).
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
from epp.metrics.series import OTHER, Names
from epp.parsers.base import Parsed, Reader
from epp.parsers.rewrite import with_model

MAX_SERIES = 10_000
"""The most series of the count: custom resources bring new names for as long as the picker runs. A guess."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The targets of requests for one model, or for all; at least one target has a weight above 0."""

    rewrite: str
    """The name of the rewrite that contains the rule; a label of the count."""
    targets: tuple[str, ...]
    weights: tuple[int, ...]


class Drawing:
    """Draws targets of one rule. Owner: the event loop."""

    def __init__(self, rule: Rule, random: Random) -> None:
        self.rewrite = rule.rewrite
        self._random = random
        self._targets = [target for target, weight in zip(rule.targets, rule.weights, strict=True) if weight]
        self._bounds = list(accumulate(weight for weight in rule.weights if weight))

    def __call__(self) -> str:
        """Return a random target, by weight."""
        if len(self._targets) == 1:
            return self._targets[0]
        return self._random.choices(self._targets, cum_weights=self._bounds)[0]


class ResourceRules:
    """The rules of custom resources by model, None for every model; each configuration passes them on to the next.

    Owner: the event loop. They are thousands, so a change is staged in steps and exchanged in one.
    """

    def __init__(self, random: Random) -> None:
        self.drawings: Mapping[str | None, Drawing] = {}
        self.random = random
        """Draws the targets, as that of ``ModelRewrites`` does; what is explained restores both."""
        self._staged: dict[str | None, Drawing] = {}
        self._replaced: list[Drawing] = []

    def stage(self, rules: Mapping[str | None, Rule | None]) -> Iterator[None]:
        """Prepare that ``rules`` replace those for the same models, and that None removes one; each step is one rule.

        All steps come before ``use``, and nothing changes before it.
        """
        staged = self._staged = dict(self.drawings)
        replaced = self._replaced = []
        for model, rule in rules.items():
            if (before := staged.pop(model, None)) is not None:
                replaced.append(before)
            if rule is not None:
                staged[model] = Drawing(rule, self.random)
            yield

    def use(self) -> Iterator[None]:
        """Follow what was staged from the next request on. Returns what is left, which frees a rule in each step."""
        self.drawings, self._staged = self._staged, {}
        replaced, self._replaced = self._replaced, []
        return _freed(replaced)


def _freed(drawings: list[Drawing]) -> Iterator[None]:
    while drawings:
        drawings.pop()
        yield


class Named(msgspec.Struct):
    """The part of a request body that contains its model."""

    model: str | None = None


NAMED = msgspec.json.Decoder(Named)


class ModelRewrites:
    """The rules, with a count of the requests that followed each. Owner: the event loop."""

    def __init__(self, exact: Mapping[str, Rule], generic: Rule | None, random: Random) -> None:
        """Make the rules of a configuration."""
        self.resources = ResourceRules(random)
        self.decisions: Counter[tuple[str, str, str]] = Counter()
        """Counts by the rewrite's name, the client's model and the target, each one of a limited number."""
        self.configured: frozenset[str | None] = frozenset((*exact, *(() if generic is None else (None,))))
        """The models for which the configuration has a rule; None is every model."""
        self._exact = {model: Drawing(rule, random) for model, rule in exact.items()}
        self._generic = Drawing(generic, random) if generic is not None else None
        self._names, self._rewrites, self._targets = Names(), Names(), Names()
        self.random = random

    def __bool__(self) -> bool:
        return bool(self._exact) or self._generic is not None or bool(self.resources.drawings)

    def take_over(self, before: ModelRewrites) -> None:
        """Continue the count of the rules that these replace, and follow the same custom resources."""
        self.decisions, self._names = before.decisions, before._names
        self._rewrites, self._targets = before._rewrites, before._targets
        self.resources = before.resources

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Discard what is counted inside the block, for requests that are explained and not served."""
        before = self.decisions, self._names, self._rewrites, self._targets
        self.decisions, self._names, self._rewrites, self._targets = Counter(), Names(), Names(), Names()
        try:
            yield
        finally:
            self.decisions, self._names, self._rewrites, self._targets = before

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
        """Return the rule for ``model``, which is empty if the client named none; None if no rule applies."""
        others = self.resources.drawings
        return self._exact.get(model) or others.get(model) or self._generic or others.get(None)

    def followed(self, rule: Drawing, model: str, target: str) -> None:
        """Count that a request for ``model`` goes to ``target``."""
        labels = self._rewrites.bounded(rule.rewrite), self._names.bounded(model), self._targets.bounded(target)
        if len(self.decisions) >= MAX_SERIES and labels not in self.decisions:
            labels = OTHER, OTHER, OTHER
        self.decisions[labels] += 1


class RewritingParser:
    """Wraps a reader so that its requests follow ``rewrites``; other bodies than JSON objects go to it unchanged.

    Rules may come and go while it is used.
    """

    def __init__(self, parser: Reader, rewrites: ModelRewrites) -> None:
        self.rewrites = rewrites
        self.parser = parser
        """The wrapped reader."""

    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        """Parse as the wrapped reader does, with the model of the rule that applies. Raises: BadRequest."""
        if not self.rewrites:
            return self.parser.parse(path, body, target_model)
        try:
            model = NAMED.decode(body).model or ""
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.parser.parse(path, body, target_model)  # whose error names the fault
        rule = self.rewrites.rule_for(model)
        if rule is None:
            return self.parser.parse(path, body, target_model)
        target = rule()
        named = body if model else with_model(body, target)
        parsed = self.parser.parse(path, named, target)
        if not parsed.target_model:  # not parsed, or of an API without models
            return parsed
        if not model:
            parsed = msgspec.structs.replace(parsed, model="", body=named)
        self.rewrites.followed(rule, model, target)
        return parsed
