"""The configuration in effect: the flags as they were parsed, and every plugin with its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from epp.config.plan import Plan
from epp.runtime.logs import USERINFO
from scorers.base import Filter, Picker, Plugin, Producer, Scorer

SECRET = re.compile(r"(token|secret|password|api_?key|credential)s?$", re.IGNORECASE)
"""Names of text parameters whose values are not shown."""
WRITTEN_OUT = frozenset({"inline"})
"""Texts that may contain secrets anywhere, comments included."""
KINDS: tuple[tuple[type[Plugin[Any]], str], ...] = (
    (Producer, "producer"),
    (Filter, "filter"),
    (Scorer, "scorer"),
    (Picker, "picker"),
)


def effective(plan: Plan, options: object) -> dict[str, object]:
    """Return the configuration as plain data; ``options`` are those of the command."""
    profile = plan.profile
    return {
        "options": plain(options),
        "profile": {
            "producers": [producer.name for producer in profile.producers],
            "filters": [narrower.name for narrower in profile.filters],
            "scorers": [{"name": scorer.name, "weight": weight} for scorer, weight in profile.scorers],
            "picker": profile.picker.name,
        },
        "plugins": [
            {"name": p.name, "type": p.type_name, "kind": kind_of(p), "parameters": plain(p.parameters)}
            for p in plugins_of(plan)
        ],
        "warnings": plain(plan.warnings),
    }


def plugin_states(plan: Plan) -> dict[str, object]:
    """Return the state that each plugin reports, in the form of the Go picker's page."""
    states: dict[str, object] = {}
    for plugin in plugins_of(plan):
        entry: dict[str, object] = {"name": plugin.name, "type": plugin.type_name}
        try:
            state = plugin.state()
        except Exception as error:  # third-party code, whose failure must not hide the other plugins
            entry["message"] = f"its state cannot be had: {type(error).__name__}"
        else:
            entry |= {"message": "plugin keeps no state"} if state is None else {"state": plain(state)}
        states[plugin.name] = entry
    return {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"), "plugins": states}


def plugins_of(plan: Plan) -> Iterator[Plugin[Any]]:
    """Yield every plugin once: first those of the profile, then the other declared ones."""
    profile = plan.profile
    seen: set[str] = set()
    of_profile = (*profile.producers, *profile.filters, *(scorer for scorer, _ in profile.scorers), profile.picker)
    for plugin in (*of_profile, *plan.instances.values()):
        if plugin.name not in seen:
            seen.add(plugin.name)
            yield plugin


def kind_of(plugin: Plugin[Any]) -> str:
    """Return the kind of ``plugin`` in one word."""
    return next((name for kind, name in KINDS if isinstance(plugin, kind)), "other")


def plain(value: object) -> Any:
    """Convert ``value`` to what JSON can represent; likely secrets are replaced."""
    return _without_secrets(msgspec.to_builtins(value, enc_hook=str, str_keys=True))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "(set)" if isinstance(inner, str) and inner and _is_secret(key) else _without_secrets(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(inner) for inner in value]
    return USERINFO.sub("", value) if isinstance(value, str) else value


def _is_secret(key: str) -> bool:
    return key in WRITTEN_OUT or SECRET.search(key) is not None
