"""Which discovery lists the endpoints of a picker, where they are not fixed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from epp.config.plan import Plan
from epp.discovery.base import Discovery
from epp.discovery.cluster import in_cluster
from epp.discovery.file import FileDiscovery
from epp.pool.pool import Pool
from epp.server.settings import Settings


def discovery_of(settings: Settings, plan: Plan, pool: Pool, environ: Mapping[str, str]) -> Discovery | None:
    """Return the discovery that the settings or else the plan name; None for fixed endpoints.

    The settings' file comes first, then ``dataLayer.discovery`` of the configuration, then the settings' pods.
    Raises: ConfigError for pods outside of a cluster.
    """
    if settings.endpoints_file is not None:
        return FileDiscovery(pool, settings.endpoints_file, watch=True)
    if plan.discovery is not None:
        return FileDiscovery(pool, Path(plan.discovery.path), watch=plan.discovery.watch_file)
    return None if settings.pods is None else in_cluster(pool, settings.pods, environ)
