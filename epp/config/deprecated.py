"""Deprecated names: one table of each kind, and one warning for each use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from epp.config.schema import Config

TYPES: Mapping[str, str] = {
    "by-label": "label-selector-filter",
    "by-label-selector": "label-selector-filter",
    "precise-prefix-cache-scorer": "prefix-cache-scorer that reads a precise-prefix-cache-producer",
    "tokenizer": "token-producer",
}
"""Deprecated plugin types, and what to write instead."""

ALIASES: Mapping[str, str] = {name: TYPES[name] for name in ("by-label-selector", "tokenizer")}
"""The deprecated types that differ from the new ones only by name: same parameters, same behaviour."""

PARAMETERS: Mapping[tuple[str, str], str | None] = {
    ("active-request-scorer", "requestTimeout"): None,
    ("approx-prefix-cache-producer", "blockSize"): "blockSizeTokens",
    ("approx-prefix-cache-producer", "maxPrefixBlocksToMatch"): "maxPrefixTokensToMatch",
    ("prefix-cache-scorer", "hashBlockSize"): "blockSizeTokens, in tokens",
    ("session-affinity-filter", "headerName"): "encodedEndpointHeaderConfig.header",
    ("session-affinity-scorer", "headerName"): "encodedEndpointHeaderConfig.header",
}
"""Deprecated parameters by plugin type, and what to write instead; None for those that have no effect."""


def deprecated_plugins(config: Config) -> Iterator[str]:
    """Yield one warning for each deprecated type and each deprecated parameter in ``config``."""
    for i, spec in enumerate(config.plugins):
        path = f"plugins[{i}]"
        if spec.type in TYPES:
            yield f"{path}.type: {spec.type} is deprecated; write {TYPES[spec.type]}"
        kind = ALIASES.get(spec.type, spec.type)
        for key, value in spec.parameters.items():
            if value is not None and (kind, key) in PARAMETERS:
                instead = PARAMETERS[kind, key]
                advice = f"write {instead}" if instead else "it changes nothing, take it out"
                yield f"{path}.parameters.{key}: is deprecated; {advice}"
