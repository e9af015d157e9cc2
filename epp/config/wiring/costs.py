"""The producer that prices requests, for the plugins that compare seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epp.catalog import gpu as gpus
from epp.catalog import models
from epp.catalog.gpu import GIB
from epp.catalog.roofline import roofline
from epp.catalog.sharing import shareable
from epp.config.strict import nearest
from epp.config.wiring.instances import Instances
from epp.config.wiring.profiles import Wiring
from epp.errors import ConfigError
from epp.picking.profile import Profile
from scorers.base import Producer
from scorers.cost.constants import Constants, Lane
from scorers.cost.tier_cost import TierCostParameters, TierCostProducer, TierCostScorer
from scorers.cost.tier_cost_picker import TierCostPicker
from scorers.prefix.producer import ApproxPrefixProducer


def bind_costs(
    instances: Instances, wiring: Wiring, producers: Sequence[Producer[Any]], before: Profile | None
) -> tuple[list[Producer[Any]], list[str]]:
    """Return ``producers`` with the pricing one after those that report cached tokens, and warnings.

    One that is not declared is created, or kept from ``before`` with all that it has learned.
    Raises: ConfigError for a second one, and for models and hardware that are not in the catalog.
    """
    pricing = [producer for producer in producers if isinstance(producer, TierCostProducer)]
    others = [producer for producer in producers if not isinstance(producer, TierCostProducer)]
    asking = [s for s, _ in wiring.scorers if isinstance(s, TierCostScorer)]
    picker = wiring.picker if isinstance(wiring.picker, TierCostPicker) else None
    if len(pricing) > 1:
        names = " and ".join(repr(producer.name) for producer in pricing[:2])
        raise ConfigError(f"plugins: {names} both price requests, and one is enough for all that ask; keep one")
    if not asking and picker is None:
        unused = [f"{instances.path_of(p)}: {p.name!r} prices requests, and nothing asks for it" for p in pricing]
        return others, unused
    known = before.producers if before is not None else ()
    if not pricing:
        implied = TierCostProducer()
        pricing = [p for p in known if isinstance(p, TierCostProducer) and p.parameters == implied.parameters]
        pricing = pricing[:1] or [implied]
    producer = pricing[0]
    if not any(producer is one for one in known):
        path = instances.path_of(producer) if producer.name in instances else ""
        producer.start_with(constants_of(producer.parameters, f"{path}.parameters"))
    if not others:
        others = [ApproxPrefixProducer()]
    return [*others, producer], _outvoted(wiring, picker)


def constants_of(parameters: TierCostParameters, path: str) -> Constants | None:
    """Return the constants that follow from the model and the hardware; None if neither is given.

    Raises: ConfigError if one is not in the catalog, and for GPUs that cannot share the model or have no room for it.
    """
    if not parameters.model:
        return None
    model, gpu = models.find(parameters.model), gpus.find(parameters.gpu)
    if model is None:
        hint = nearest(parameters.model, models.MODELS, "; write prefillTokensPerSecond instead")
        raise ConfigError(f"{path}.model: {parameters.model!r} is not known{hint}")
    if gpu is None:
        hint = nearest(parameters.gpu, gpus.GPUS, "; write prefillTokensPerSecond instead")
        raise ConfigError(f"{path}.gpu: {parameters.gpu!r} is not known{hint}")
    ranks = parameters.gpus_per_endpoint
    if (refusal := shareable(model, ranks, f"{path}.gpusPerEndpoint: ")) is not None:
        raise ConfigError(refusal)
    if model.weight_bytes > ranks * gpu.memory_bytes:
        verb = " has" if ranks == 1 else " each have"
        raise ConfigError(
            f"{path}.gpusPerEndpoint: {ranks} {gpu.name} of {gpu.memory_bytes / GIB:.1f} GiB{verb} no room for the "
            f"{model.weight_bytes / GIB:.1f} GiB of weights of {model.name}; write how many GPUs an endpoint has, and "
            "the model with its quantization"
        )
    times, start = roofline(model, gpu, ranks), Constants()
    return Constants(
        fixed_s=start.fixed_s,
        token_s=times.token_s,
        pair_s=times.pair_s,
        decode_s=start.decode_s,
        cpu=Lane(start.cpu.fixed_s, times.load_s),
        storage=Lane(start.storage.fixed_s, max(start.storage.token_s, times.load_s)),
        stay_s=start.stay_s,
    )


def _outvoted(wiring: Wiring, picker: TierCostPicker | None) -> list[str]:
    others = [scorer.name for scorer, _ in wiring.scorers if not isinstance(scorer, TierCostScorer)]
    if picker is None or picker.parameters.seconds_per_point or not others:
        return []
    names = ", ".join(others)
    return [
        f"{picker.name!r} goes by seconds, {names} for equal ones only; parameters.secondsPerPoint makes them count"
    ]
