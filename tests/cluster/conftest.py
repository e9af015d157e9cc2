"""Clusters for tests, which of these tests `make test` runs, and what a missing program does to them.

A test without its program is skipped with the reason, or fails where ``CLUSTER_TESTS`` is ``required``.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, cluster
from tests.cluster.control_plane import ControlPlane, control_plane
from tests.cluster.environment import Unavailable
from tests.cluster.workloads import engines

HERE = Path(__file__).parent
SLICE = ("test_node", "test_objects", "test_picker", "test_pods", "test_pools", "test_releases")
"""Modules whose tests are in `make test`, which they may make five minutes longer; all others have the marker."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of this module's own."""
    with control_plane(tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of this module's own."""
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def two_engines(here: Cluster) -> None:
    """Two simulated engines in the cluster, for all tests of a module."""
    here.apply(engines(2))
    here.rolled_out("engines")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.stem not in SLICE:
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    yield from _skipped_without_its_programs()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    yield from _skipped_without_its_programs()


def _skipped_without_its_programs() -> Generator[None]:
    try:
        yield
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("CLUSTER_TESTS") == "required":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped where it must run: {reason}"
    return report
