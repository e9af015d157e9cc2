"""The specs of objectives and rewrites, read one by one: what is wrong with one concerns no other.

Unknown fields are ignored where they add something. In a rule they refuse the object: a condition of a newer release
that is not applied would let the rule match more requests than its author wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from epp.config.strict import convert
from epp.errors import ConfigError
from epp.kube.groups import GROUP
from epp.picking.model_rewrites import Rule

T = TypeVar("T")

POOL_KIND = "InferencePool"
"""What a reference to a pool means where it has no kind."""
PRIORITIES = -(1 << 31), (1 << 31) - 1
"""The least and the greatest priority. Source: ``priority`` is an int32 in the Go picker, which the CRD does not
check."""
MOST_WEIGHT = 1_000_000
MAX_SPEC_BYTES = 1 << 18
MOST = 1_000
"""The most models that one rewrite matches, and the most targets that it has. With ``MAX_SPEC_BYTES`` it bounds how
long one object stalls the picks: 1,000 models take 3 to 4 ms, and 1.1 MB, which are refused, 4 to 5 ms (2026-11-22,
two busy cores). A guess: several rewrites have as many as they like together."""
MAX_MODEL = 1024
"""The most characters of a model's name, as in the configuration."""


_UNREADABLE = msgspec.DecodeError, RecursionError, UnicodeDecodeError


class PoolName(NamedTuple):
    """The pool that a picker serves."""

    name: str
    groups: tuple[str, ...]
    """The groups in which the picker looks for it: a reference to any of them is one to this pool."""


class _PoolRef(msgspec.Struct, frozen=True):
    group: str | None = None
    kind: str | None = None
    name: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    pool_ref: _PoolRef | None = None
    pool_refs: tuple[_PoolRef, ...] | None = None


class _ObjectiveSpec(msgspec.Struct, frozen=True):
    priority: int | None = None


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: str
    type: Literal["Exact"] | None = None


class _Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: _Model


class _Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    model_rewrite: str
    weight: int | None = None


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    matches: tuple[_Match, ...] | None = None
    targets: tuple[_Target, ...] | None = None


class _RewriteSpec(msgspec.Struct, frozen=True):
    rules: tuple[_Rule, ...] | None = None


def refers_to(spec: msgspec.Raw, pool: PoolName) -> bool:
    """Return whether ``spec`` names ``pool`` in ``poolRef`` or in the newer ``poolRefs``; no group is the newer one.

    False for what cannot be read: an object that names no pool concerns no picker.
    """
    try:
        read = msgspec.json.decode(spec, type=_Spec)
    except _UNREADABLE:
        return False
    references = (*(() if read.pool_ref is None else (read.pool_ref,)), *(read.pool_refs or ()))
    return any(
        each.name == pool.name
        and (each.kind or POOL_KIND) == POOL_KIND
        and (GROUP if each.group is None else each.group) in pool.groups
        for each in references
    )


def priority_of(spec: msgspec.Raw) -> int:
    """Return an objective's priority, 0 where there is none. Raises: ConfigError for one that is not an int32."""
    priority = _read(spec, _ObjectiveSpec).priority or 0
    least, greatest = PRIORITIES
    if not least <= priority <= greatest:
        raise ConfigError(f"spec.priority: {priority} is not from {least} to {greatest}; write a smaller number")
    return priority


def rules_of(name: str, spec: msgspec.Raw) -> Mapping[str | None, Rule]:
    """Return the rules of the rewrite ``name`` by the model that they match; None is every model.

    Of two rules of the object that match a model, the first has it. Raises: ConfigError with the key path.
    """
    found: dict[str | None, Rule] = {}
    rules = _read(spec, _RewriteSpec).rules or ()
    for what, count in (
        ("models", sum(len(rule.matches or ()) for rule in rules)),
        ("targets", sum(len(rule.targets or ()) for rule in rules)),
        ("rules", len(rules)),
    ):
        if count > MOST:
            raise ConfigError(f"spec.rules: {count:,} {what}, and one rewrite has {MOST:,} at most; write several")
    for i, written in enumerate(rules):
        where = f"spec.rules[{i}]"
        rule = _rule(name, written, where)
        for j, match in enumerate(written.matches or ()):
            found.setdefault(_model(match.model.value, f"{where}.matches[{j}].model.value"), rule)
        if not written.matches:
            found.setdefault(None, rule)
    if not found:
        raise ConfigError("spec.rules: empty; write a rule, or delete the rewrite")
    return found


def _rule(name: str, written: _Rule, where: str) -> Rule:
    targets = written.targets or ()
    weights = [target.weight for target in targets]
    for k, target in enumerate(targets):
        _model(target.model_rewrite, f"{where}.targets[{k}].modelRewrite")
        if target.weight is not None and not 0 <= target.weight <= MOST_WEIGHT:
            raise ConfigError(f"{where}.targets[{k}].weight: {target.weight} is not from 0 to {MOST_WEIGHT:,}")
    if not targets:
        raise ConfigError(f"{where}.targets: empty; write at least one modelRewrite")
    uniform = all(weight is None for weight in weights)
    if not uniform and not any(weights):
        raise ConfigError(f"{where}.targets: no target has a weight above 0, so none is ever chosen; write a weight")
    return Rule(
        name,
        tuple(target.model_rewrite for target in targets),
        tuple(1 if uniform else weight or 0 for weight in weights),
    )


def _model(name: str, where: str) -> str:
    if not 0 < len(name) <= MAX_MODEL:
        problem = "empty" if not name else f"{len(name):,} characters, and a model's name has {MAX_MODEL:,} at most"
        raise ConfigError(f"{where}: {problem}; write a model's name")
    return name


def _read(spec: msgspec.Raw, kind: type[T]) -> T:
    size = memoryview(spec).nbytes
    if size > MAX_SPEC_BYTES:
        raise ConfigError(f"spec: {size:,} bytes, and {MAX_SPEC_BYTES:,} are read at most; write several objects")
    try:
        return msgspec.json.decode(spec, type=kind)
    except msgspec.ValidationError:
        pass
    except _UNREADABLE as error:
        raise ConfigError(f"spec: {error}; write JSON that can be read") from error
    # Slower, and its errors name the key.
    return convert(_known_fields(msgspec.json.decode(spec), kind), kind, "spec")


def _known_fields(spec: Any, kind: type[Any]) -> Any:
    """Return ``spec`` with the fields that are read, since others at its top are not an error."""
    if not isinstance(spec, dict):
        return spec
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    return {key: value for key, value in spec.items() if key in names}
