"""A configuration that changes while requests are served by it."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from epp.config.plan import Plan
from epp.config.wiring.build import plan_from
from epp.decision import RequestHead
from epp.errors import ConfigError, EppError, ShuttingDown
from epp.runtime.followed_files import FollowedFiles
from epp.server.app import App
from epp.server.reload import PlanSource
from epp.server.settings import Settings
from scorers.affinity.topology_affinity import TopologyAffinityScorer
from scorers.base import Candidate, Plugin, Request, Slot, Tier
from tests.epp.doubles import completion

PATIENCE_S = 20
TIERED = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {{type: queue-scorer}}
  - {{type: no-hit-lru-scorer, parameters: {{lruSize: {lru}}}}}
  - {{type: approx-prefix-cache-producer, name: gpu, parameters: {{autoTune: false, lruCapacityPerServer: {gpu}}}}}
  - {{type: approx-prefix-cache-producer, name: cpu, parameters: {{lruCapacityPerServer: {cpu}}}}}
  - {{type: prefix-cache-scorer, name: on-gpu, parameters: {{prefixMatchInfoProducerName: gpu}}}}
schedulingProfiles:
  - name: default
    plugins:
      - {{pluginRef: queue-scorer, weight: {weight}}}
      - {{pluginRef: no-hit-lru-scorer}}
      - {{pluginRef: on-gpu, weight: 1}}
"""


def tiered(*, weight: float = 2, gpu: int = 1000, cpu: int = 4000, lru: int = 1024) -> str:
    return TIERED.format(weight=weight, gpu=gpu, cpu=cpu, lru=lru)


class Stage:
    """A picker that follows the file of its configuration."""

    def __init__(self, app: App) -> None:
        self.app = app

    def metric(self, name: str) -> float:
        for source in self.app.telemetry.sources:
            for reading in source():
                if reading.name == name:
                    ((_, value),) = reading.samples
                    return float(value)
        raise LookupError(name)

    def weight(self, name: str) -> float:
        plan = self.app.core.plan
        return next(weight for scorer, weight in plan.profile.scorers if scorer.name == name)

    def held(self, prompt: str) -> dict[Tier, int]:
        """Return the tokens of a prompt that the first endpoint holds, as a decision about it sees them."""
        decision = self.app.director.decide(RequestHead({":path": "/v1/completions"}), completion(prompt))
        assert decision.request is not None
        return {each.tier: sum(each.tokens.values()) for each in decision.request.cached.values()}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - files announce nothing
                await asyncio.sleep(0.005)


@asynccontextmanager
async def following(path: Path) -> AsyncIterator[Stage]:
    file = FollowedFiles(path, look_every_s=0.05)
    file.seen()
    read = partial(plan_from, path, None)
    app = App(read(), Settings(endpoints=("127.0.0.1:9",)), source=PlanSource(file, read))
    await app.start()
    try:
        yield Stage(app)
    finally:
        await app.stop(0.0)


def run(path: Path, scenario: Callable[[Stage], object], first: str | None = None) -> None:
    path.write_text(first or tiered())

    async def main() -> None:
        async with following(path) as stage:
            await scenario(stage)  # type: ignore[misc]

    asyncio.run(main())


def test_weights_change_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"

    async def scenario(s: Stage) -> None:
        assert s.weight("queue-scorer") == 2
        path.write_text(tiered(weight=7))
        await s.until(lambda: s.weight("queue-scorer") == 7)
        assert s.metric("tierwise_config_reloads") == 1
        assert s.metric("tierwise_config_current") == 1

    run(path, scenario)


def test_the_log_tells_what_a_change_has_changed_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "picker.yaml"
    caplog.set_level(logging.INFO, "epp.server.reload")

    async def scenario(s: Stage) -> None:
        path.write_text(tiered(weight=7))
        await s.until(lambda: s.metric("tierwise_config_reloads") == 1)
        path.write_text(tiered(weight=7) + "# the same\n")
        await s.until(lambda: s.metric("tierwise_config_reloads") == 2)

    run(path, scenario)
    records = [record for record in caplog.records if record.name == "epp.server.reload"]
    assert [(record.levelname, record.getMessage()) for record in records] == [
        ("INFO", f"{path}: no longer: scorer queue-scorer: weight 2"),
        ("INFO", f"{path}: scorer queue-scorer: weight 7"),
        ("INFO", f"{path} has changed, and is in use from now on"),
        ("INFO", f"{path} has changed, and is in use from now on"),
    ]


def test_what_is_known_of_the_caches_stays_and_fits_into_the_new_capacity(tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"
    prompt = "hello " * 2000  # 46 blocks of 64 tokens

    async def scenario(s: Stage) -> None:
        s.held(prompt)
        assert s.held(prompt) == {Tier.GPU: 46 * 64, Tier.CPU: 46 * 64}
        path.write_text(tiered(gpu=40))  # 40 blocks of 16 tokens: 10 of 64
        await s.until(lambda: s.metric("tierwise_config_reloads") == 1)
        assert s.held(prompt) == {Tier.GPU: 10 * 64, Tier.CPU: 46 * 64}

    run(path, scenario)


def test_other_tiers_are_learned_anew_and_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "picker.yaml"
    prompt = "hello " * 2000

    async def scenario(s: Stage) -> None:
        s.held(prompt)
        path.write_text("\n".join(line for line in tiered().splitlines() if "name: cpu" not in line))
        await s.until(lambda: s.metric("tierwise_config_reloads") == 1)
        assert s.held(prompt) == {Tier.GPU: 0}
        assert s.held(prompt) == {Tier.GPU: 46 * 64}

    run(path, scenario)
    assert "learned anew" in caplog.text


def test_a_plugin_whose_parameters_stay_remembers_and_one_whose_parameters_change_is_new(tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"

    async def scenario(s: Stage) -> None:
        before = s.app.core.plan.instances
        path.write_text(tiered(weight=3, lru=99))
        await s.until(lambda: s.metric("tierwise_config_reloads") == 1)
        after = s.app.core.plan.instances
        assert after["queue-scorer"] is before["queue-scorer"]
        assert after["no-hit-lru-scorer"] is not before["no-hit-lru-scorer"]

    run(path, scenario)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("plugins: [", "not YAML"),
        ("", "holds nothing"),
        (tiered().replace("queue-scorer}", "queue-scorrer}"), "queue-scorer"),
        (tiered(weight=-1), "finite number, 0 or more"),
        (tiered() + "dataLayer: {injectDefaults: false}\n", "dataLayer.sources: has changed, which takes a restart"),
    ],
    ids=["no YAML", "nothing", "unknown type", "bad weight", "needs a restart"],
)
def test_a_bad_one_is_refused_as_a_whole_and_the_old_one_stays(
    tmp_path: Path, bad: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "picker.yaml"

    async def scenario(s: Stage) -> None:
        plan, prompt = s.app.core.plan, "hello " * 2000
        s.held(prompt)
        path.write_text(bad)
        await s.until(lambda: s.metric("tierwise_config_reload_errors") == 1)
        assert s.app.core.plan is plan
        assert s.held(prompt)[Tier.GPU] == 46 * 64
        assert s.metric("tierwise_config_current") == 0
        path.write_text(tiered(weight=7))
        await s.until(lambda: s.weight("queue-scorer") == 7)
        assert s.metric("tierwise_config_current") == 1

    run(path, scenario)
    (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert says in record.getMessage()
    assert str(path) in record.getMessage()


def test_a_file_that_is_removed_leaves_the_picker_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"

    async def scenario(s: Stage) -> None:
        path.unlink()
        await s.until(lambda: s.metric("tierwise_config_reload_errors") == 1)
        assert s.weight("queue-scorer") == 2
        path.write_text(tiered(weight=5))
        await s.until(lambda: s.weight("queue-scorer") == 5)

    run(path, scenario)


def test_a_configmap_that_is_swapped_is_followed(tmp_path: Path) -> None:
    """Kubernetes turns the link ``..data`` to a new folder; the file's own path never changes."""
    for name, weight in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "picker.yaml").write_text(tiered(weight=weight))
    data, path = tmp_path / "..data", tmp_path / "picker.yaml"
    data.symlink_to("one")
    path.symlink_to("..data/picker.yaml")

    async def main() -> None:
        async with following(path) as s:
            assert s.weight("queue-scorer") == 1
            (tmp_path / "..new").symlink_to("two")
            (tmp_path / "..new").rename(data)
            await s.until(lambda: s.weight("queue-scorer") == 2)

    asyncio.run(main())


def test_failures_that_were_counted_stay_counted(tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"

    async def scenario(s: Stage) -> None:
        s.app.core.plan.profile.failures["queue-scorer"] = 3
        path.write_text(tiered(weight=3))
        await s.until(lambda: s.weight("queue-scorer") == 3)
        assert s.app.core.plan.profile.failures == {"queue-scorer": 3}

    run(path, scenario)


WAITING = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl={gate}]
plugins: [{{type: queue-scorer}}, {{type: concurrency-detector, parameters: {{maxConcurrency: {most}}}}}]
schedulingProfiles: [{{name: default, plugins: [{{pluginRef: queue-scorer}}]}}]
flowControl: {{saturationDetector: {{pluginRef: concurrency-detector}}}}
"""


def test_requests_that_wait_stay_while_the_configuration_changes_until_there_is_room_or_the_end(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        path = tmp_path / "config.yaml"
        path.write_text(WAITING.format(gate="true", most=1))
        resumed: list[EppError | None] = []
        async with following(path) as stage:
            director = stage.app.director

            def ask() -> None:
                arrival = director.read(RequestHead({":path": "/v1/completions"}), completion())
                if director.admit(arrival, b"", resumed.append) is None:
                    director.place(arrival)

            for _ in range(3):
                ask()
            room = stage.app.core.gate.room
            assert room is not None
            assert room.controller.size == 2
            path.write_text(WAITING.format(gate="true", most=2))
            await stage.until(lambda: room.controller.settings.detector.parameters.max_concurrency == 2)
            await stage.until(lambda: resumed == [None] * 2)  # nobody placed them, so there was room for both
            director.place(director.read(RequestHead({":path": "/v1/completions"}), completion()))
            ask()
            assert room.controller.size == 1
            path.write_text(WAITING.format(gate="false", most=2))
            await stage.until(lambda: resumed == [None] * 3)
            path.write_text(WAITING.format(gate="true", most=1))
            await stage.until(lambda: stage.app.core.gate.room is not None)
            ask()
        assert [type(error) for error in resumed] == [type(None)] * 3 + [ShuttingDown]

    asyncio.run(scene())


NEAR = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {{type: topology-extractor, parameters: {{zone: {label}}}}}
  - {{type: topology-affinity-scorer, parameters: {{peerTopologyHeader: x-peer}}}}
  - {{type: topology-affinity-filter, parameters: {{peerTopologyHeader: x-peer, minAffinity: zone}}}}
{more}
"""
EVERY = Path(__file__).parents[2] / "data" / "every-plugin.yaml"
DANGLING = "flowControl: {saturationDetector: {pluginRef: nobody}}\n"


def scores(plan: Plan) -> list[float]:
    there = Candidate(slot=Slot(0), address="10.0.0.1:80", labels={"one": "z"})
    request = Request(id="r", model="m", target_model="m", headers={"x-peer": "zone=z"})
    (scorer,) = [plugin for plugin in plan.instances.values() if isinstance(plugin, TopologyAffinityScorer)]
    return scorer.score(request, [there])


def test_a_refused_plan_leaves_the_labels_of_the_one_in_use() -> None:
    live = plan_from(None, NEAR.format(label="one", more=""))
    before = scores(live)
    assert before == [0.05]
    with pytest.raises(ConfigError, match="nobody"):
        plan_from(None, NEAR.format(label="two", more=DANGLING), before=live)
    assert scores(live) == before
    assert scores(plan_from(None, NEAR.format(label="two", more=""), before=live)) == [0.0]


@pytest.mark.parametrize("refused", [True, False])
def test_to_build_a_plan_changes_no_plugin_of_the_one_in_use(refused: bool) -> None:
    text = EVERY.read_text()
    live = plan_from(None, text)
    before = {name: pickle.dumps(vars(plugin)) for name, plugin in live.instances.items() if is_plain(plugin)}
    sources = {name: vars(plugin).get("source") for name, plugin in live.instances.items()}
    assert len(before) > 20
    changed = text.replace("zone: zone, region: region", "zone: elsewhere, region: region")
    assert changed != text
    if refused:
        with pytest.raises(ConfigError, match="nobody"):
            plan_from(None, changed + "saturationDetector: {pluginRef: nobody}\n", before=live)
    else:
        plan_from(None, changed, before=live)
    for name, plugin in live.instances.items():
        assert vars(plugin).get("source") is sources[name]
        if name in before:
            assert pickle.dumps(vars(plugin)) == before[name], name


def is_plain(plugin: Plugin[Any]) -> bool:
    """Whether the state can be serialized; other states hold functions, or the prefix cache, which is compared
    separately.
    """
    try:
        pickle.dumps(vars(plugin))
    except (TypeError, AttributeError, pickle.PicklingError):
        return False
    return True


def test_an_index_of_other_tiers_is_taken_apart_when_the_configuration_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"

    async def scenario(s: Stage) -> None:
        s.held("a" * 4000)
        before = s.app.core.plan.prefix_cache
        assert before is not None
        root = before.index.root
        (run,) = (root.children or {}).values()
        lines = [line for line in tiered().splitlines() if "name: cpu" not in line]
        path.write_text("\n".join(lines) + "\n")
        await s.until(lambda: s.metric("tierwise_config_reloads") == 1)
        await s.until(lambda: run.parent is None)
        assert root.children is None
        assert before.index.is_empty
        assert before.index.statistics().endpoints == 0

    run(path, scenario)
