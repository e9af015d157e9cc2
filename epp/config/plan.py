"""What a configuration comes to: instances, wired and ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epp.config.wiring.sources import FileDiscoveryParameters
from epp.flowcontrol.plan import AdmissionPlan
from epp.parsers import Reader
from epp.picking.model_rewrites import ModelRewrites
from epp.picking.profile import Profile
from epp.scrape.parameters import ScrapeParameters
from epp.tokens.plan import TokenPlan
from scorers.base import Plugin
from scorers.labels.served_model_filter import ServedModelFilter
from scorers.precise.precise import PrecisePrefixProducer
from scorers.prefix.cache import PrefixCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that the configuration decides. The shells add sockets, clocks and tasks."""

    profile: Profile
    parser: Reader
    instances: Mapping[str, Plugin[Any]]
    """Every declared plugin by name."""
    rewrites: ModelRewrites
    """The rules that ``parser`` follows, to be counted."""
    admission: AdmissionPlan
    prefix_cache: PrefixCache | None
    """To be told of endpoints (``Pool.listeners``); None when nothing asks what is cached."""
    precise: PrecisePrefixProducer | None
    """Whose engines' KV events are to be followed; None when nobody asks."""
    discovery: FileDiscoveryParameters | None
    """None when the configuration leaves it to the command line."""
    scrape: ScrapeParameters | None
    """None when nothing reads the engines' metrics."""
    served: ServedModelFilter | None = None
    """By which requests go to endpoints that serve their model; None where every endpoint is taken to serve all."""
    tokens: TokenPlan | None = None
    """Who turns prompts into token ids; None when nothing asks for them."""
    summary: tuple[str, ...]
    """One line for each instance, for the start log."""
    warnings: tuple[str, ...]
    """What was accepted and is probably not meant; the key path first."""

    @property
    def changes_responses(self) -> bool:
        """Whether there may be something to change in a response that its request's headers do not tell."""
        profile = self.profile
        return bool(self.rewrites) or profile.sets_response_headers or bool(profile.reporters)

    @property
    def lines(self) -> tuple[str, ...]:
        """All that is said of it in the log."""
        return (*self.warnings, *self.summary)

    def describe(self) -> tuple[str, ...]:
        """The summary."""
        return self.summary
