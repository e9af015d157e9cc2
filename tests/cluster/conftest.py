"""Which tests of the cluster `make test` runs, and that none may be skipped where ``CLUSTER_TESTS`` is ``required``."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLICE = ("test_node", "test_objects", "test_picker", "test_pods", "test_pools", "test_releases")
"""Modules whose tests are in `make test`, which they may make five minutes longer; all others have the marker."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.stem not in SLICE:
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("CLUSTER_TESTS") == "required":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped where it must run: {reason}"
    return report
