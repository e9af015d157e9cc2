"""What the schema allows and is not implemented: refused by name where it would change behaviour."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from epp.config.schema import Config
from epp.errors import ConfigError

_GATES = ("flowControl", "haPopulateNonLeaderDatastore", "dataLayer")
"""The last one is deprecated: what it enabled is always on."""
_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


def refuse(config: Config) -> None:
    """Check that everything in ``config`` is implemented. Raises: ConfigError with the first exception and a remedy."""
    for path, sentence in _asked(config):
        raise ConfigError(f"{path}: {sentence}")


def gate_is_open(config: Config, wanted: str) -> bool:
    """Return whether the feature gate ``wanted`` is on. The last entry counts; a gate is off without one."""
    last = False
    for gate in config.feature_gates:
        name, equals, value = gate.partition("=")
        if name == wanted:
            last = not equals or value in _TRUE
    return last


def inert(config: Config) -> list[str]:
    """Return warnings about what is accepted but has no effect."""
    found = []
    if config.data_layer.cross_replica_sync_interval is not None:
        found.append("dataLayer.crossReplicaSyncInterval: has no effect without a syncer")
    return found


def _asked(config: Config) -> Iterator[tuple[str, str]]:
    for i, gate in enumerate(config.feature_gates):
        yield from _gate(f"featureGates[{i}]", gate)
    if config.data_layer.peer_discovery is not None:
        yield "dataLayer.peerDiscovery", "replicas do not find each other yet; run one replica and take it out"
    if config.data_layer.cross_replica_syncer_plugin_ref:
        yield "dataLayer.crossReplicaSyncerPluginRef", "replicas share nothing yet; run one replica and take it out"


def _gate(path: str, gate: str) -> Iterator[tuple[str, str]]:
    name, equals, value = gate.partition("=")
    if name not in _GATES:
        close, known = get_close_matches(name, _GATES, n=1), f"known: {', '.join(_GATES)}"
        yield path, f"unknown feature gate {name!r}; {f'did you mean {close[0]}?' if close else known}"
    elif equals and value not in _TRUE + _FALSE:
        yield path, f"{gate!r} must end in =true or =false"
