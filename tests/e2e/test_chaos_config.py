"""The configuration changes under load, to valid and invalid ones, with the real Envoy in both configurations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.site.chaos import Mode, eventually, site
from tests.e2e.site.storm import Fate, executed

pytestmark = pytest.mark.e2e
CLIENTS = 12
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {{type: queue-scorer}}
  - {{type: approx-prefix-cache-producer, name: gpu, parameters: {{autoTune: false, lruCapacityPerServer: {blocks}}}}}
  - {{type: prefix-cache-scorer, parameters: {{prefixMatchInfoProducerName: gpu}}}}
schedulingProfiles:
  - name: default
    plugins:
      - {{pluginRef: queue-scorer, weight: {weight}}}
      - {{pluginRef: prefix-cache-scorer}}
"""


def good(round_: int) -> str:
    return CONFIG.format(blocks=1000 * (1 + round_ % 3), weight=1 + round_)


BAD = ("plugins: [", CONFIG.format(blocks=-1, weight=1), CONFIG.format(blocks=1, weight=1).replace("queue", "queu"))


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_nothing_is_lost_while_the_configuration_changes_and_is_spoilt(tmp_path: Path, mode: Mode) -> None:
    path = tmp_path / "picker.yaml"
    path.write_text(good(0))

    async def scenario() -> None:
        async with site(tmp_path, mode, config_file=path) as here:
            with here.storm.raging(CLIENTS):
                for round_ in range(1, 7):
                    await here.storm.more(30)
                    path.write_text(good(round_))
                    await eventually(
                        lambda: here.picker.metric("tierwise_config_reloads_total"),
                        lambda taken, wanted=round_: taken == wanted,
                        f"change {round_} is taken",
                    )
                    await here.storm.more(30)
                    path.write_text(BAD[round_ % len(BAD)])
                    await eventually(
                        lambda: here.picker.metric("tierwise_config_reload_errors_total"),
                        lambda refused, wanted=round_: refused == wanted,
                        f"bad change {round_} is refused",
                    )
                await here.storm.more(30)
            await here.storm.ended()
            assert here.storm.fates().keys() == {Fate.ANSWERED}
            assert max(executed(here.engines).values()) == 1
            assert await here.picker.metric("tierwise_config_current") == 0
            await here.settled()

    asyncio.run(scenario())
