"""The start warns of waits that are longer than the proxy's time limit."""

from __future__ import annotations

import asyncio

import pytest

from epp.standalone.command import start_picker
from tests.e2e.site.options import options_of

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins: [{type: queue-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
flowControl: {@limits}
"""
TOO_LONG = " is longer than Envoy waits; requests are refused after 3599 s"


@pytest.mark.parametrize(
    ("limits", "warned"),
    [
        ("", []),
        ("defaultRequestTTL: 0s", []),
        ("defaultRequestTTL: 3599s", []),
        ("defaultRequestTTL: 1h", ["flowControl.defaultRequestTTL: 3600 s"]),
        ("noEndpointRequestTTL: 2h", ["flowControl.noEndpointRequestTTL: 7200 s"]),
    ],
)
def test_a_wait_that_is_longer_than_the_proxys_patience_is_warned_of(limits: str, warned: list[str]) -> None:
    async def scene() -> tuple[str, ...]:
        options = options_of(
            host="127.0.0.1",
            metrics_port=0,
            endpoint=("127.0.0.1:9",),
            config_text=CONFIG.replace("@limits", limits),
        )
        picker = await start_picker(options)
        await picker.stop(0.0)
        return picker.core.plan.warnings

    assert [line for line in asyncio.run(scene()) if "Envoy waits" in line] == [each + TOO_LONG for each in warned]
