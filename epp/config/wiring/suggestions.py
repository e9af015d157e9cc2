"""Suggestions for an unknown plugin type: the nearest of the kind that its place in the file takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

from epp.config.schema import Config, FlowControl, PriorityBand, Reference
from epp.config.strict import near
from epp.config.wiring.sources import CoreMetricsExtractor, FileDiscovery, MetricsDataSource
from epp.flowcontrol.fairness import FairnessPolicy
from epp.flowcontrol.limits import UsageLimitPolicy
from epp.flowcontrol.ordering import OrderingPolicy
from epp.flowcontrol.saturation import SaturationDetector
from epp.parsers import Parser
from scorers.base import Filter, Picker, Plugin, Scorer

Classes: TypeAlias = tuple[type[Plugin[Any]], ...]

ALL_UP_TO = 6
"""Up to this many candidates are listed in full; of more, only the nearest."""
NEAREST = 4
LIKENESS = 0.4
"""Below this similarity two names are unrelated. A guess."""


def instead(name: str, kinds: Mapping[str, type[Plugin[Any]]], place: Classes = ()) -> str:
    """Return the end of a sentence about the type ``name``; ``place`` has the classes that may stand in its place."""
    _, _, last_word = name.rpartition("-")
    fitting = (
        [known for known, kind in kinds.items() if issubclass(kind, place)]
        if place
        else [known for known in kinds if known.rpartition("-")[2] == last_word]
    )
    guess = near(name, fitting) or near(name, kinds)
    if guess:
        return f"did you mean {guess}?"
    if 0 < len(fitting) <= ALL_UP_TO:
        return f"there are {', '.join(sorted(fitting))}"
    nearest = get_close_matches(name, fitting, n=NEAREST, cutoff=0.0 if place else LIKENESS)
    some = f"the nearest are {', '.join(nearest)}; " if nearest else ""
    return f"{some}docs/configuration.md lists all types"


def places(config: Config) -> Mapping[str, Classes]:
    """Return the classes of plugins that may be declared under each name that ``config`` refers to."""
    return dict(_places(config))


def _places(config: Config) -> Iterator[tuple[str, Classes]]:
    for profile in config.scheduling_profiles:
        for use in profile.plugins:
            yield use.plugin_ref, (Scorer,) if use.weight is not None else (Filter, Scorer, Picker)
    flow, data = config.flow_control or FlowControl(), config.data_layer
    bands = [*flow.priority_bands, flow.default_priority_band, flow.default_negative_priority_band]
    yield from ((band.fairness_policy_ref, (FairnessPolicy,)) for band in _given(bands))
    yield from ((band.ordering_policy_ref, (OrderingPolicy,)) for band in _given(bands))
    yield flow.usage_limit_policy_plugin_ref, (UsageLimitPolicy,)
    extractors = [extractor for source in data.sources for extractor in source.extractors]
    references: tuple[tuple[Iterable[Reference | None], Classes], ...] = (
        ((*config.request_handler.parsers, config.parser), (Parser,)),
        ((config.saturation_detector, flow.saturation_detector), (SaturationDetector,)),
        ((data.discovery,), (FileDiscovery,)),
        (extractors, (CoreMetricsExtractor,)),
    )
    for several, classes in references:
        yield from ((reference.plugin_ref, classes) for reference in several if reference is not None)
    yield from ((source.plugin_ref, (MetricsDataSource,)) for source in data.sources)


def _given(bands: Iterable[PriorityBand | None]) -> Iterator[PriorityBand]:
    return (band for band in bands if band is not None)
