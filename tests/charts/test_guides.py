"""Every values file and command of the guides, as it stands: what it renders, and that the picker accepts it."""

from __future__ import annotations

from functools import cache

import pytest

from epp.config.load import load_text
from epp.config.wiring.build import build
from tests.charts.guides import GUIDES, Guide
from tests.charts.rendering import Rendered, render, understood


@cache
def rendered(guide: Guide) -> Rendered:
    return render(guide.chart, {}, *guide.arguments)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_tierwise_accepts_the_arguments_and_the_configuration(guide: Guide) -> None:
    made = rendered(guide)
    options = understood(made.arguments)
    assert options.config.file is not None
    build(load_text(made.files[options.config.file.name]))
    assert options.config.file.parent.name == "config"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_the_picker_that_runs_is_tierwise(guide: Guide) -> None:
    container = rendered(guide).container()
    assert container["image"].startswith("tierwise/tierwise:")
    assert container["command"] == ["tierwise", "serve"]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_the_pods_are_those_of_the_files(guide: Guide) -> None:
    pool = rendered(guide).one("InferencePool")["spec"]
    assert set(pool["selector"]["matchLabels"]) & {
        "llm-d.ai/guide",
        "llm-d.ai/inferenceServing",
        "llm-d.ai/inference-serving",
    }
    assert pool["targetPorts"] == [{"number": 8000}]
    assert pool["endpointPickerRef"] == {
        "name": "llm-d-infpool-epp",
        "port": {"number": 9002},
        "failureMode": "FailOpen",
    }
