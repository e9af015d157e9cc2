"""The declared plugins as instances, which can be looked up by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from epp.config.schema import PluginSpec
from epp.config.strict import convert, located, nearest
from epp.config.wiring.kinds import Kind, kind_named
from epp.config.wiring.suggestions import Classes
from epp.errors import ConfigError
from scorers import DRAWING
from scorers.affinity.topology_affinity import TopologyAffinityFilter, TopologyAffinityScorer
from scorers.base import Plugin
from scorers.pickers import PickerParameters
from scorers.precise.deprecated import PrecisePrefixScorer
from scorers.precise.producer import PrecisePrefixProducer
from scorers.prefix.producer import ApproxPrefixProducer

P = TypeVar("P")

BOUND = (
    ApproxPrefixProducer,
    PrecisePrefixProducer,
    PrecisePrefixScorer,
    TopologyAffinityFilter,
    TopologyAffinityScorer,
)
"""Kinds that are bound to other plugins while a plan is built, and have no state of their own (a producer's state is in
the prefix cache, which finds it again by its tier). They are always created anew: a plan that is refused in the end
must not have changed the serving one.
"""


@dataclass(frozen=True, slots=True)
class Declared:
    """One plugin instance and the key path that declares it."""

    path: str
    plugin: Plugin[Any]


class Instances:
    """Plugin instances by their unique names, in the order of declaration, and which of them are used.

    Owner: ``build``, for the time of one call.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Declared] = {}
        self._used: set[str] = set()

    def __iter__(self) -> Iterator[Declared]:
        return iter(list(self._by_name.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def add(self, plugin: Plugin[Any], path: str) -> None:
        """Add an instance. Raises: ConfigError when its name is taken."""
        if plugin.name in self._by_name:
            other = self._by_name[plugin.name].path
            raise ConfigError(f"{path}.name: {plugin.name!r} is the name of {other} already; give one of them another")
        self._by_name[plugin.name] = Declared(path, plugin)

    def resolve(self, name: str, path: str) -> Plugin[Any]:
        """Return the instance that ``path`` refers to. Raises: ConfigError if there is none."""
        if not name:
            raise ConfigError(f"{path}: missing; it names a plugin{nearest('', self._by_name)}")
        if name not in self._by_name:
            raise ConfigError(f"{path}: no plugin is named {name!r}{nearest(name, self._by_name)}")
        self._used.add(name)
        return self._by_name[name].plugin

    def resolve_as(self, kind: type[P], name: str, path: str) -> P:
        """Return the instance that ``path`` refers to. Raises: ConfigError if there is none, or it has another kind."""
        plugin = self.resolve(name, path)
        if not isinstance(plugin, kind):
            wanted = getattr(kind, "type_name", kind.__name__.lower())
            article = "an" if wanted[0] in "aeiou" else "a"
            raise ConfigError(f"{path}: {name!r} is of type {plugin.type_name}; {article} {wanted} belongs here")
        return plugin

    def of(self, kind: type[P]) -> list[P]:
        """Return all instances of ``kind``, in the order of declaration."""
        return [declared.plugin for declared in self._by_name.values() if isinstance(declared.plugin, kind)]

    def path_of(self, plugin: Plugin[Any]) -> str:
        """Return the key path that declares ``plugin``."""
        return self._by_name[plugin.name].path

    def use(self, plugin: object) -> None:
        """Mark ``plugin`` as used although nothing refers to it."""
        self._used.update(d.plugin.name for d in self._by_name.values() if d.plugin is plugin)

    def unused(self) -> list[Declared]:
        """Return the declared plugins that are not used."""
        return [declared for name, declared in self._by_name.items() if name not in self._used]


def instantiate(
    specs: tuple[PluginSpec, ...],
    kinds: Mapping[str, Kind],
    random: Random,
    picks: int,
    before: Mapping[str, Plugin[Any]],
    places: Mapping[str, Classes],
) -> Instances:
    """Check and create every declared plugin; pickers without a number of endpoints get ``picks``.

    ``places`` has the classes that are expected under a name. A plugin that is unchanged since ``before`` is kept, with
    all its state.
    Raises: ConfigError with the key path.
    """
    instances = Instances()
    for i, spec in enumerate(specs):
        path = f"plugins[{i}]"
        kind = kind_named(spec.type, kinds, path, spec.name, places.get(spec.name or spec.type, ()))
        parameters = spec.parameters
        if issubclass(kind.Parameters, PickerParameters):
            parameters = {"maxNumOfEndpoints": picks, **parameters}
        settings = convert(parameters, kind.Parameters, f"{path}.parameters")
        name = spec.name or spec.type  # the type may be an older name of the kind
        instances.add(kept(kind, settings, name, before) or make(kind, settings, name, random, path), path)
    return instances


def kept(kind: Kind, parameters: object, name: str, before: Mapping[str, Plugin[Any]]) -> Plugin[Any] | None:
    """Return the earlier instance of ``name`` if kind and parameters are the same and it is none of ``BOUND``."""
    plugin = before.get(name)
    same = type(plugin) is kind and plugin.parameters == parameters and not issubclass(kind, BOUND)
    return plugin if same else None


def make(kind: Kind, parameters: object, name: str, random: Random, path: str) -> Plugin[Any]:
    """Return an instance of ``kind``. Raises: ConfigError when it refuses its parameters."""
    try:
        if issubclass(kind, DRAWING):
            return kind(parameters, name, random)  # type: ignore[arg-type]
        return kind(parameters, name)
    except (ValueError, TypeError) as error:
        raise ConfigError(located(f"{path}.parameters", str(error))) from error
