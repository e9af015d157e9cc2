"""The header ``x-tierwise-decision`` through a real Envoy, in the lean mode and in full."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epp.picking.decision_header import HEADER
from epp.standalone.settings import ResponseMode
from tests.e2e.site.background import Background
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import behind_gateway, router

pytestmark = pytest.mark.e2e

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: approx-prefix-cache-producer}
  - {type: tier-cost-scorer}
"""


@pytest.mark.parametrize("mode", list(ResponseMode), ids=lambda mode: mode.name)
def test_a_client_that_asks_is_told_where_its_prompt_was_held(
    loop: Background, engines: list[Engine], mode: ResponseMode
) -> None:
    options = {"config_text": CONFIG, "tell_decisions": True, "response_mode": mode}
    with router(loop, engines, **options) as running:
        ask = running.client.completions.with_raw_response.create
        silent = ask(model="m", prompt="y" * 2048)
        assert HEADER not in silent.headers
        running.settle()
        first, again = (ask(model="m", prompt="x" * 2048, extra_headers={HEADER: "1"}, stream=False) for _ in range(2))
        for raw in (first, again):
            said = json.loads(raw.headers[HEADER])
            assert said["endpoint"] == raw.parse().choices[0].text
            assert said["candidates"][0]["numbers"]["total_s"] > 0
        running.settle()
        third = json.loads(ask(model="m", prompt="x" * 2048, extra_headers={HEADER: "1"}).headers[HEADER])
        held = {row["endpoint"]: row["tokens"]["gpu"] for row in third["candidates"]}
        assert held[third["endpoint"]] == 512


def test_a_client_that_asks_where_it_is_not_allowed_is_not_told(
    loop: Background, engines: list[Engine], tmp_path: Path
) -> None:
    with behind_gateway(loop, engines, tmp_path, config_text=CONFIG) as running:
        raw = running.client.completions.with_raw_response.create(
            model="m", prompt="x" * 2048, extra_headers={HEADER: "1"}
        )
        assert HEADER not in raw.headers
