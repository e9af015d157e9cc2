"""Every plugin type that a configuration may name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from epp.config.deprecated import ALIASES
from epp.config.not_built import NOT_BUILT
from epp.config.wiring.implied import IMPLIED
from epp.config.wiring.sources import (
    CoreMetricsExtractor,
    FileDiscovery,
    KubernetesNotificationSource,
    MetricsDataSource,
    SingleProfileHandler,
)
from epp.config.wiring.suggestions import Classes, instead
from epp.config.wiring.token_producer import TokenProducer
from epp.errors import ConfigError
from epp.flowcontrol.policies import POLICIES
from epp.parsers import PARSERS
from epp.picking.usage_reporter import RequestAttributeReporter
from scorers import PLUGINS
from scorers.base import Extractor, Filter, Picker, Plugin, Producer, Scorer

GROUP = "tierwise.plugins"

Kind = type[Plugin[Any]]


def known_kinds() -> Mapping[str, Kind]:
    """Return our types and those of installed packages, by type name. Called once, at start.

    Raises: ConfigError that names an entry point that cannot be loaded, or that has a type name in use.
    """
    own: tuple[Kind, ...] = (
        *PLUGINS, *PARSERS, *IMPLIED, *POLICIES, SingleProfileHandler, FileDiscovery, MetricsDataSource,
        CoreMetricsExtractor, RequestAttributeReporter, TokenProducer, KubernetesNotificationSource,
    )  # fmt: skip
    kinds = {kind.type_name: kind for kind in own}
    for entry in entry_points(group=GROUP):
        where = f"entry point {entry.name!r} ({entry.value}) of {entry.dist.name if entry.dist else 'a package'}"
        try:
            kind = entry.load()
        except Exception as error:
            raise ConfigError(f"{where} cannot be loaded: {error}; mend or uninstall the package") from error
        if not (isinstance(kind, type) and issubclass(kind, Filter | Producer | Scorer | Picker | Extractor)):
            raise ConfigError(f"{where} must be a class derived from Filter, Producer, Scorer, Picker or Extractor")
        name = getattr(kind, "type_name", None)
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where} has no type_name")
        if name in kinds:
            raise ConfigError(f"{where} takes the type name {name!r}, which {kinds[name].__module__} has")
        kinds[name] = kind
    return kinds


def kind_named(name: str, kinds: Mapping[str, Kind], path: str, called: str = "", place: Classes = ()) -> Kind:
    """Return the plugin type ``name`` for the instance ``called``, which is used where ``place`` belongs.

    Raises: ConfigError that suggests the type that was probably meant.
    """
    name = ALIASES.get(name, name)
    if not name:
        known = instead(called, kinds, place) if called else "write type: and one of the types in docs/configuration.md"
        raise ConfigError(f"{path}.type: missing; {known}")
    if name in NOT_BUILT:
        raise ConfigError(
            f"{path}.type: {name} is a plugin of the Go picker that does not exist here yet; take it out, or use "
            f"another: {instead(name, kinds, place)}"
        )
    if name not in kinds:
        raise ConfigError(f"{path}.type: unknown plugin type {name!r}; {instead(name, kinds, place)}")
    return kinds[name]
