"""The conformance suite of the Gateway API Inference Extension, with our picker in the suite's own manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster import ROOT
from tests.cluster.gateway import suite
from tests.cluster.gateway.report import conform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
WRITTEN = ROOT / "docs/conformance/tierwise.yaml"


def test_every_test_of_the_suite_passes_and_the_report_is_the_one_of_the_page(tmp_path: Path) -> None:
    outcome = conform(tmp_path, "tierwise-conformance")
    assert outcome.tests == dict.fromkeys(suite.TESTS, "PASS"), "\n".join(suite.told(outcome.log))
    assert dated(outcome.report) == dated(yaml.safe_load(WRITTEN.read_text()))


def dated(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report as if it were of one day."""
    return {**report, "date": "one day"}
