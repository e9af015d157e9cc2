"""Reads the pages of pickers and engines through the API server's proxy, so that no port has to be open to us."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from epp.doctor.asking import Asking
from epp.doctor.pages import MANY, EnginePage, PickerPage, engine_page, picker_page
from epp.doctor.snapshot import Snapshot, declared, is_ready

PAGE_S = 2.0
"""The longest that a page of a pod may take. A guess: an engine under load answers within half a second."""
MOST_ENGINES, MOST_PICKERS, AT_ONCE = 32, 16, 16
"""How many pages are read, so that a pool of 10,000 pods takes no longer than one of 32; the report has the number."""
MOST_OF_A_PAGE = 4 << 20
"""The most bytes of a page that are read. A guess: an engine of vLLM has 0.2 MB, and 4 MiB take 0.3 s."""
MOMENT_S = 1.0
"""How long after the first pages the engines' are read again, where gateways seem to send requests past the picker."""


@dataclass(frozen=True, slots=True)
class PagesRead:
    """The pages by pod, and how many of how many were read."""

    pickers: Mapping[str, PickerPage]
    engines: Mapping[str, EnginePage]
    counts: Mapping[str, str]


async def read_pages(asking: Asking, seen: Snapshot, ahead_s: float | None) -> PagesRead:
    """Return the pages; ``ahead_s`` is by how much the API server's clock is ahead of ours."""
    of_pickers = [
        (pod.metadata.name, picker.metrics_port)
        for picker in seen.pickers()
        if picker.is_tierwise
        for pod in seen.pods_of_picker(picker)
        if pod.status.phase == "Running" and pod.status.pod_ip
    ]
    of_engines = [
        (pod.metadata.name, port)
        for pool in seen.asked_pools()
        for pod in seen.pods_of(pool)
        if is_ready(pod) and pod.status.pod_ip
        for port in pool.ports
        if not declared(pod) or port in declared(pod)  # another port is a finding of its own, not a page
    ]
    # Evenly over the list, so that the engines of every Deployment are among them.
    step = max(1, -(-len(of_engines) // MOST_ENGINES))
    chosen, slots = of_engines[::step], asyncio.Semaphore(AT_ONCE)
    pickers = await _pickers(asking, slots, of_pickers[:MOST_PICKERS], ahead_s)
    engines = await _engines(asking, slots, chosen)
    idle = bool(pickers) and all(page.requests == 0 for page in pickers.values())
    if idle and sum(page.requests for page in engines.values()) >= MANY:
        await asyncio.sleep(MOMENT_S)
        again = await _engines(asking, slots, list(chosen))
        pickers = await _pickers(asking, slots, of_pickers[:MOST_PICKERS], ahead_s)
        engines = {
            key: replace(page, more=max(0.0, again[key].requests - page.requests)) if key in again else page
            for key, page in engines.items()
        }
    counts = {
        "pools": str(len(seen.asked_pools())),
        "pods": f"{len(seen.pods):,}",
        "pickers": str(len(seen.pickers())),
        "pages of pickers": f"{len(pickers)} of {len(of_pickers)}",
        "pages of engines": f"{len(engines)} of {len(of_engines):,}",
    }
    return PagesRead(pickers, engines, counts)


async def _pickers(
    asking: Asking, slots: asyncio.Semaphore, wanted: list[tuple[str, int]], ahead_s: float | None
) -> dict[str, PickerPage]:
    async def one(pod: str, port: int) -> tuple[str, PickerPage] | None:
        async with slots:
            page = await asking.page(pod, port, "/readyz", {"verbose": ""}, PAGE_S)
        now = time.time() + ahead_s if ahead_s is not None else 0.0
        return None if page is None else (pod, picker_page(page.status, page.body, now))

    return dict([page for page in await asyncio.gather(*(one(*each) for each in wanted)) if page is not None])


async def _engines(asking: Asking, slots: asyncio.Semaphore, wanted: list[tuple[str, int]]) -> dict[str, EnginePage]:
    async def one(pod: str, port: int) -> tuple[str, EnginePage] | None:
        async with slots:
            page = await asking.page(pod, port, "/metrics", {}, PAGE_S)
        if page is not None and len(page.body) > MOST_OF_A_PAGE:
            asking.too_long("/metrics", pod, len(page.body))
            return None
        return None if page is None or page.status != 200 else (f"{pod}:{port}", engine_page(page.body))

    return dict([page for page in await asyncio.gather(*(one(*each) for each in wanted)) if page is not None])
