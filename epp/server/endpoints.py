"""Where the endpoints of a picker come from, and what reads their pages."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack
from pathlib import Path

from epp.discovery.base import Discovery
from epp.discovery.file import FileDiscovery
from epp.discovery.pool_discovery import PoolDiscovery
from epp.pool.pool import Endpoint
from epp.ports.resolve import resolve
from epp.scrape.pace import Pace
from epp.scrape.parameters import ScrapeParameters
from epp.scrape.scraper import Scraper
from epp.served.lister import Lister
from epp.server.cluster import Cluster
from epp.server.core import Core
from epp.server.settings import Settings


async def open_endpoints(
    settings: Settings, core: Core, cluster: Cluster | None, stack: AsyncExitStack
) -> Discovery | None:
    """Return what keeps the pool's endpoints up to date, which ``stack`` stops; None if they are fixed.

    Fixed endpoints come first, then the settings' file, then ``dataLayer.discovery`` of the configuration, then the
    cluster. Raises: ConfigError for a source that can never be used.
    """
    if fixed := settings.endpoints:
        core.pool.replace([Endpoint(address) for address in dict.fromkeys(await resolve(fixed))])
        return None
    if cluster is not None and cluster.endpoints is not None:  # started with the cluster
        return cluster.endpoints
    if settings.endpoints_file is not None:
        discovery = FileDiscovery(core.pool, settings.endpoints_file, watch=True)
    elif (listed := core.plan.discovery) is not None:
        discovery = FileDiscovery(core.pool, Path(listed.path), watch=listed.watch_file)
    else:
        return None
    await discovery.start()
    stack.push_async_callback(discovery.stop)
    core.telemetry.gauge_source(discovery.readings)
    return discovery


async def open_scraper(pace: Pace, core: Core, parameters: ScrapeParameters, stack: AsyncExitStack) -> Scraper:
    """Return the running scraper of the pool, which ``stack`` stops with the lister of models beside it."""
    scraper = Scraper(
        core.pool, core.ledger, parameters, pace,
        ended=core.ended, page_read=core.balance.page_read, clock=core.clock,
    )  # fmt: skip
    await scraper.start()
    stack.push_async_callback(scraper.stop)
    core.telemetry.gauge_source(scraper.readings)
    lister = Lister(core.pool, core.catalog, scraper.client, parameters.engines, clock=core.clock)
    lister.start()
    stack.push_async_callback(lister.stop)
    core.telemetry.gauge_source(lister.readings)
    return scraper


def unspoken(discovery: Discovery | None, protocols: Collection[str]) -> str:
    """Return why no parser, which together speak ``protocols``, fits the InferencePool; empty if one does.

    A pool without an ``appProtocol`` asks for none.
    """
    pool = discovery.current if isinstance(discovery, PoolDiscovery) else None
    if pool is None or pool.app_protocol is None or pool.app_protocol in protocols:
        return ""
    return (
        f"the pool's appProtocol is {pool.app_protocol}, and the configuration's parsers speak "
        f"{' and '.join(sorted(protocols))} only"
    )
