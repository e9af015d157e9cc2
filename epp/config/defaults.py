"""The configuration that is used if none is given, and its text."""

from __future__ import annotations

import msgspec
import yaml

from epp.config.schema import API_VERSIONS, KIND, Config, PluginSpec, Profile, ProfilePlugin

BY_MODEL = "served-model-filter"
ABOUT = """\
# The profile that is in force where no configuration is given.
# tierwise check --config-file FILE says what a change does; docs/configuration.md has every key.
"""


def default_config() -> Config:
    """Return the default: only endpoints that serve the model; queue 2, KV usage 2, GPU prefix 1, CPU prefix 1.

    Source: the weights of llm-d's guide "Offloading Prefix Cache to CPU Memory".
    """
    weights = {
        "queue-scorer": 2.0,
        "kv-cache-utilization-scorer": 2.0,
        "gpu-prefix-cache-scorer": 1.0,
        "cpu-prefix-cache-scorer": 1.0,
    }
    plugins = [
        PluginSpec(type=BY_MODEL),
        PluginSpec(type="queue-scorer"),
        PluginSpec(type="kv-cache-utilization-scorer"),
    ]
    for tier in ("gpu", "cpu"):
        producer = f"{tier}-prefix-cache-producer"
        plugins += [
            PluginSpec(type="approx-prefix-cache-producer", name=producer, parameters={"tier": tier}),
            PluginSpec(
                type="prefix-cache-scorer",
                name=f"{tier}-prefix-cache-scorer",
                parameters={"prefixMatchInfoProducerName": producer},
            ),
        ]
    profile = (
        ProfilePlugin(plugin_ref=BY_MODEL),
        *(ProfilePlugin(plugin_ref=name, weight=weight) for name, weight in weights.items()),
    )
    return Config(
        api_version=API_VERSIONS[0],
        kind=KIND,
        plugins=tuple(plugins),
        scheduling_profiles=(Profile(name="default", plugins=profile),),
    )


def written_default() -> str:
    """Return the default as a document, as a starting point for a user's own."""
    return ABOUT + yaml.safe_dump(_said(default_config()), sort_keys=False)


def _said(value: object) -> object:
    """Return ``value`` as plain data, without fields that have their defaults."""
    if isinstance(value, msgspec.Struct):
        fields = [(field, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        return {field.encode_name: _said(said) for field, said in fields if said and said != field.default}
    return [_said(item) for item in value] if isinstance(value, tuple) else value
