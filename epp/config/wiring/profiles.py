"""The profile: which filters and scorers it runs, with which weights, and its picker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from epp.config.schema import Config, Profile, ProfilePlugin
from epp.config.strict import nearest
from epp.config.wiring.instances import Instances
from epp.config.wiring.sources import SingleProfileHandler
from epp.errors import ConfigError
from epp.parsers import Parser
from scorers.base import Filter, Picker, Plugin, Scorer
from scorers.pickers import MaxScorePicker, PickerParameters

DEFAULT_WEIGHT = 1.0


class Wiring(NamedTuple):
    """The plugins that a profile runs, in order."""

    name: str
    filters: Sequence[Filter[Any]]
    scorers: Sequence[tuple[Scorer[Any], float]]
    picker: Picker[Any]
    warnings: Sequence[str]


def wire_profile(config: Config, instances: Instances, random: Random, picks: int) -> Wiring:
    """Return the profile that ``config`` declares, or one of all declared plugins.

    Raises: ConfigError with the key path.
    """
    handlers = instances.of(SingleProfileHandler)
    if len(handlers) > 1:
        names = " and ".join(repr(handler.name) for handler in handlers[:2])
        raise ConfigError(f"plugins: {names} are both profile handlers; keep one")
    for handler in handlers:
        instances.use(handler)
    path = "schedulingProfiles"
    _check_names(config.scheduling_profiles, path)
    if len(config.scheduling_profiles) > 1:
        raise ConfigError(
            f"{path}: {len(config.scheduling_profiles)} profiles, and single-profile-handler runs one; handlers that "
            "choose between profiles do not exist here yet"
        )
    profile = config.scheduling_profiles[0] if config.scheduling_profiles else _of_everything(config, instances)
    return _wire(profile, f"{path}[0]", instances, random, picks)


def _check_names(profiles: Sequence[Profile], path: str) -> None:
    seen: dict[str, int] = {}
    for i, profile in enumerate(profiles):
        if not profile.name:
            raise ConfigError(f"{path}[{i}].name: missing; write name: default")
        if profile.name in seen:
            raise ConfigError(f"{path}[{i}].name: {profile.name!r} is the name of {path}[{seen[profile.name]}] already")
        seen[profile.name] = i


def _of_everything(config: Config, instances: Instances) -> Profile:
    """Return a profile of all usable plugins, except those that are used as saturation detectors."""
    flow = config.flow_control
    elsewhere = {
        reference.plugin_ref
        for reference in (config.saturation_detector, flow.saturation_detector if flow is not None else None)
        if reference is not None
    }
    usable = [
        d.plugin.name
        for d in instances
        if isinstance(d.plugin, Filter | Scorer | Picker) and d.plugin.name not in elsewhere
    ]
    return Profile(name="default", plugins=tuple(ProfilePlugin(plugin_ref=name) for name in usable))


def _wire(profile: Profile, path: str, instances: Instances, random: Random, picks: int) -> Wiring:
    filters: list[Filter[Any]] = []
    scorers: list[tuple[Scorer[Any], float]] = []
    pickers: list[Picker[Any]] = []
    warnings: list[str] = []
    listed: dict[str, str] = {}
    for i, use in enumerate(profile.plugins):
        where = f"{path}.plugins[{i}]"
        plugin = instances.resolve(use.plugin_ref, f"{where}.pluginRef")
        if plugin.name in listed:
            raise ConfigError(
                f"{where}.pluginRef: {plugin.name!r} is listed at {listed[plugin.name]} already; keep one"
            )
        listed[plugin.name] = where
        _check_profile_name(plugin, profile.name, instances)
        if isinstance(plugin, Filter):
            filters.append(plugin)
        if isinstance(plugin, Scorer):  # a scorer may also be a filter
            scorers.append((plugin, _weight(use.weight, f"{where}.weight")))
            continue
        if isinstance(plugin, Picker):
            pickers.append(plugin)
        elif isinstance(plugin, Parser):
            warnings.append(
                f"{where}.pluginRef: {plugin.name!r} is a parser; name it in requestHandler.parsers instead"
            )
        elif not isinstance(plugin, Filter):
            raise ConfigError(
                f"{where}.pluginRef: {plugin.name!r} is of type {plugin.type_name}; a profile lists filters, "
                "scorers and a picker"
            )
        if use.weight is not None:
            warnings.append(f"{where}.weight: only scorers have a weight; this one changes nothing")
    if len(pickers) > 1:
        names = " and ".join(repr(picker.name) for picker in pickers[:2])
        raise ConfigError(f"{path}.plugins: {names} are both pickers; a profile has one")
    picker = pickers[0] if pickers else _implied_picker(instances, random, picks)
    return Wiring(profile.name, filters, scorers, picker, warnings)


def _check_profile_name(plugin: Plugin[Any], profile: str, instances: Instances) -> None:
    named = getattr(plugin.parameters, "profile_name", "")
    if named not in ("", profile):
        path = f"{instances.path_of(plugin)}.parameters.profileName"
        raise ConfigError(f"{path}: no profile is named {named!r}{nearest(named, [profile])}")


def _weight(weight: float | None, path: str) -> float:
    if weight is None:
        return DEFAULT_WEIGHT
    if not (math.isfinite(weight) and weight >= 0):
        raise ConfigError(f"{path}: {weight} must be a finite number, 0 or more")
    return weight


def _implied_picker(instances: Instances, random: Random, picks: int) -> Picker[Any]:
    """Return a declared picker that the profile does not list, else a picker of the highest score."""
    for picker in instances.of(Picker):  # type: ignore[type-abstract]
        instances.use(picker)
        return picker
    return MaxScorePicker(PickerParameters(max_num_of_endpoints=picks), random=random)
