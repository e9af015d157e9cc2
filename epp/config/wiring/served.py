"""Whether requests go only to endpoints that serve their model."""

from __future__ import annotations

from epp.config.wiring.instances import Instances
from epp.config.wiring.profiles import Wiring
from epp.errors import ConfigError
from scorers.labels.served_model_filter import ServedModelFilter


def wire_served(wiring: Wiring, instances: Instances, *, implied: bool) -> tuple[Wiring, ServedModelFilter | None]:
    """Return the wiring, and its filter by served models; None if there is none, or it is disabled.

    The filter is one that the profile lists. With ``implied``, it may also be one that is only declared, or a new one.
    It runs before the profile's other filters, so that a model that no endpoint serves is refused before the request
    waits for anything. Raises: ConfigError for two of them.
    """
    declared = instances.of(ServedModelFilter)
    if len(declared) > 1:
        names = " and ".join(repr(one.name) for one in declared[:2])
        raise ConfigError(f"plugins: {names} both go by served models; keep one")
    chosen = declared[0] if declared and (implied or declared[0] in wiring.filters) else None
    if chosen is not None:
        instances.use(chosen)
    elif implied:
        chosen = ServedModelFilter()
    if chosen is not None and not chosen.parameters.enabled:
        chosen = None
    others = [narrower for narrower in wiring.filters if not isinstance(narrower, ServedModelFilter)]
    return wiring._replace(filters=others if chosen is None else [chosen, *others]), chosen
