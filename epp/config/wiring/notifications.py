"""Which plugins learn from objects of the Kubernetes API, from the sources of ``dataLayer``."""

from __future__ import annotations

from epp.config.plan import Notification
from epp.config.schema import DataLayer
from epp.config.wiring.instances import Instances
from epp.config.wiring.sources import KubernetesNotificationSource
from scorers.base import Extractor


def wire_notifications(layer: DataLayer, instances: Instances) -> tuple[tuple[Notification, ...], list[str]]:
    """Return the kinds that are followed, with their extractors, and warnings.

    Raises: ConfigError with the key path, for what is no extractor of objects.
    """
    found, warnings = list[Notification](), list[str]()
    kind: type[Extractor] = Extractor  # type: ignore[type-abstract, type-arg]
    for i, source in enumerate(layer.sources):
        path = f"dataLayer.sources[{i}]"
        plugin = instances.resolve(source.plugin_ref, f"{path}.pluginRef") if source.plugin_ref in instances else None
        if not isinstance(plugin, KubernetesNotificationSource):
            continue
        extractors = tuple(
            instances.resolve_as(kind, extractor.plugin_ref, f"{path}.extractors[{j}].pluginRef")
            for j, extractor in enumerate(source.extractors)
        )
        if not extractors:
            warnings.append(f"{path}.extractors: none, so the objects are not read; bind one, or take the source out")
            continue
        parameters = plugin.parameters
        found.append(Notification(path, parameters.group, parameters.version, parameters.kind, extractors))
    return tuple(found), warnings
