"""The result of a configuration: plugin instances, wired and ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epp.config.schema import FileDiscoveryParameters
from epp.flowcontrol.detectors import UtilizationDetector
from epp.flowcontrol.settings import AdmissionPlan
from epp.parsers import Reader
from epp.picking.model_rewrites import ModelRewrites
from epp.picking.profile import Profile
from epp.scrape.parameters import ScrapeParameters
from epp.tokens.plan import TokenPlan
from scorers.base import Extractor, Plugin
from scorers.labels.served_model_filter import ServedModelFilter
from scorers.precise.producer import PrecisePrefixProducer
from scorers.prefix.cache import PrefixCache


@dataclass(frozen=True, slots=True)
class Notification:
    """A kind of object of the Kubernetes API, and the plugins that learn from its objects."""

    path: str
    """The key path of the source."""
    group: str
    version: str
    kind: str
    extractors: tuple[Extractor[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that the configuration decides. The caller adds sockets, clocks and tasks."""

    profile: Profile
    parser: Reader
    instances: Mapping[str, Plugin[Any]]
    """Every declared plugin by name."""
    rewrites: ModelRewrites
    """The rules that ``parser`` applies, here for their counters."""
    admission: AdmissionPlan
    prefix_cache: PrefixCache | None
    """Notified of endpoints (``Pool.listeners``); None if no plugin reads cached tokens."""
    precise: PrecisePrefixProducer | None
    """The producer that needs the engines' KV events; None if there is none."""
    discovery: FileDiscoveryParameters | None
    """None if the configuration leaves discovery to the command line."""
    scrape: ScrapeParameters | None
    """None if the engines' metrics are not read."""
    served: ServedModelFilter | None = None
    """The filter for endpoints that serve the request's model; None if every endpoint is taken to serve all."""
    protocols: frozenset[str] = frozenset()
    """How requests of the parsers may be sent to endpoints, as an InferencePool's ``appProtocol`` names it."""
    notifications: tuple[Notification, ...] = ()
    """What plugins learn from the Kubernetes API."""
    tokens: TokenPlan | None = None
    """How prompts become token ids; None if no plugin needs them."""
    summary: tuple[str, ...]
    """One line for each instance, for the start log."""
    warnings: tuple[str, ...]
    """What was accepted but is probably not intended; each begins with the key path."""

    @property
    def changes_responses(self) -> bool:
        """Whether responses may need changes that the headers of their requests do not reveal."""
        profile = self.profile
        return bool(self.rewrites) or profile.sets_response_headers or bool(profile.reporters)

    @property
    def can_shed(self) -> bool:
        """Whether the saturation can be measured: a ``utilization-detector`` needs the engines' metrics."""
        return self.scrape is not None or not isinstance(self.admission.detector, UtilizationDetector)

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines that are logged about the plan."""
        return (*self.warnings, *self.summary)

    def describe(self) -> tuple[str, ...]:
        """Return the summary of the plan."""
        return self.summary
