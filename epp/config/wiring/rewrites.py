"""``inferenceModelRewrites``: the rules as written, and the rules that a picker applies."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from epp.config.schema import InferenceModelRewrite, RewriteRule
from epp.errors import ConfigError
from epp.picking.model_rewrites import ModelRewrites, Rule


def wire_rewrites(written: Sequence[InferenceModelRewrite], random: Random) -> tuple[ModelRewrites, tuple[str, ...]]:
    """Return the rules to apply, and warnings.

    Raises: ConfigError with the key path: no rules, no targets, a name or a match written twice in one place.
    """
    exact: dict[str, Rule] = {}
    generic: Rule | None = None
    warnings: list[str] = []
    names: dict[str, str] = {}
    places: dict[str | None, str] = {}
    for i, rewrite in enumerate(written):
        path = f"inferenceModelRewrites[{i}]"
        name = rewrite.name or f"rewrite-{i}"
        if name in names:
            raise ConfigError(f"{path}.name: {name!r} is the name of {names[name]} already; give one of them another")
        names[name] = path
        if not rewrite.rules:
            raise ConfigError(f"{path}.rules: empty; write a rule, or take the rewrite out")
        seen: dict[str | None, str] = {}
        for j, written_rule in enumerate(rewrite.rules):
            where = f"{path}.rules[{j}]"
            rule = _rule(name, written_rule, where, warnings)
            for model, place in _matched(written_rule, where):
                if model in seen:
                    what = "every model" if model is None else repr(model)
                    raise ConfigError(f"{place}: {what} is matched by {seen[model]} already; keep one of the two")
                seen[model] = place
                if model in places:
                    warnings.append(f"{place}: has no effect: {places[model]} comes first")
                elif model is None:
                    generic = rule
                else:
                    exact[model] = rule
        places = seen | places
    return ModelRewrites(exact, generic, random), tuple(warnings)


def _matched(rule: RewriteRule, where: str) -> list[tuple[str | None, str]]:
    """Return the models that ``rule`` matches, each with its key path; None stands for every model."""
    if not rule.matches:
        return [(None, where)]
    return [(match.model.value, f"{where}.matches[{k}].model.value") for k, match in enumerate(rule.matches)]


def _rule(rewrite: str, rule: RewriteRule, where: str, warnings: list[str]) -> Rule:
    weights = [target.weight for target in rule.targets]
    if not weights:
        raise ConfigError(f"{where}.targets: empty; write at least one modelRewrite")
    uniform = all(weight is None for weight in weights)
    if not uniform:
        warnings += [
            f"{where}.targets[{k}]: has no weight where others have one, so it is never chosen"
            for k, weight in enumerate(weights)
            if weight is None
        ]
    return Rule(
        rewrite,
        tuple(target.model_rewrite for target in rule.targets),
        tuple(1 if uniform else weight or 0 for weight in weights),
    )
