"""Objectives and rewrites of a cluster beside those of the configuration, which may change meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest

from epp.config.plan import Plan
from epp.config.wiring.build import plan_from
from epp.decision import RequestHead
from epp.errors import Shed
from epp.extproc.options import ExchangeSettings
from epp.flowcontrol.gate import Shedding
from epp.picking.model_rewrites import Rule
from epp.picking.request import OBJECTIVE
from epp.pool.pool import Endpoint
from epp.server.app import App
from epp.server.core import Core
from epp.server.settings import ClusterOptions, PoolOptions, Settings

HEAD = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}
BODY = json.dumps({"model": "m", "prompt": "x"}).encode()


def plan(**fields: object) -> Plan:
    return plan_from(None, json.dumps({**HEAD, **fields}))


def core(**fields: object) -> Core:
    made = Core(plan(**fields), Settings())
    made.pool.replace([Endpoint("10.0.0.1:8000")])
    return made


def priority(of: Core, objective: str, header: str = OBJECTIVE[0]) -> int:
    head = RequestHead(headers={":path": "/v1/completions", header: objective})
    return of.director.read(head, BODY).request.priority


def target(of: Core) -> str:
    return of.director.read(RequestHead(headers={":path": "/v1/completions"}), BODY).request.target_model


def use(of: Core, **fields: object) -> None:
    steps: Iterator[None] = of.use(plan(**fields))
    for _ in steps:
        pass


def follow(of: Core, rules: Mapping[str | None, Rule | None]) -> None:
    for _ in of.stage_rewrites(rules):
        pass
    for _ in of.change_rewrites():
        pass


def test_an_objective_of_the_cluster_gives_its_priority_and_the_configurations_comes_first() -> None:
    made = core(inferenceObjectives=[{"name": "mine", "priority": 1}])
    made.change_objectives({"mine": 9, "theirs": -(2**31)})
    assert [priority(made, name, header) for name in ("mine", "theirs", "unknown") for header in OBJECTIVE] == [
        1, 1, -(2**31), -(2**31), 0, 0,
    ]  # fmt: skip
    made.change_objectives({"theirs": None})
    assert priority(made, "theirs") == 0
    use(made, inferenceObjectives=[])
    assert priority(made, "mine") == 9, "what the configuration gives up is the cluster's"


def test_a_rewrite_of_the_cluster_changes_the_model_and_outlives_a_new_configuration() -> None:
    made = core()
    assert target(made) == "m"
    follow(made, {None: Rule("all", ("general",), (1,)), "m": Rule("one", ("exact",), (1,))})
    assert target(made) == "exact"
    rules = [{"matches": [{"model": {"value": "m"}}], "targets": [{"modelRewrite": "configured"}]}]
    use(made, inferenceModelRewrites=[{"name": "r", "rules": rules}])
    assert target(made) == "configured"
    use(made)
    assert target(made) == "exact"
    follow(made, {"m": None})
    assert target(made) == "general"
    follow(made, {None: None})
    assert target(made) == "m"


def test_rules_that_were_staged_count_all_at_once_and_under_the_configuration_of_that_moment() -> None:
    made = core()
    follow(made, {"m": Rule("one", ("old",), (1,)), None: Rule("all", ("general",), (1,))})
    for n, _ in enumerate(made.stage_rewrites({"m": None, "n": None, None: Rule("all", ("new",), (1,))})):
        assert target(made) == "old"
        if n == 1:
            use(made)
    use(made)
    left = made.change_rewrites()
    assert target(made) == "new"
    assert len(list(left)) == 2, "the rules that are no longer used"


def test_the_first_negative_priority_of_the_cluster_makes_requests_sheddable() -> None:
    detector = {"type": "concurrency-detector", "parameters": {"maxConcurrency": 1}}
    flow = {"saturationDetector": {"pluginRef": "concurrency-detector"}}
    made = core(plugins=[detector, {"type": "queue-scorer"}], flowControl=flow)
    made.change_objectives({"batch": -1})
    head = RequestHead(headers={":path": "/v1/completions", OBJECTIVE[0]: "batch"})
    first = made.director.read(head, BODY)
    assert made.director.admit(first, BODY, lambda _: None) is None
    made.director.place(first)
    with pytest.raises(Shed):
        made.director.admit(made.director.read(head, BODY), BODY, lambda _: None)
    made.change_objectives({"batch": None})
    assert made.director.admit(made.director.read(head, BODY), BODY, lambda _: None) is None


def test_without_metrics_no_saturation_is_known_and_nothing_is_shed() -> None:
    made = core(dataLayer={"injectDefaults": False})
    made.change_objectives({"batch": -1})
    assert priority(made, "batch") == -1
    assert not isinstance(made.director._admission, Shedding)


def test_callbacks_learn_that_a_plan_was_replaced() -> None:
    made, calls = core(), list[set[str]]()
    made.on_use.append(lambda: calls.append(set(made.configured_objectives)))
    use(made, inferenceObjectives=[{"name": "new"}])
    assert calls == [{"new"}]


@pytest.mark.parametrize("pool", [None, PoolOptions(name="p", groups=())])
def test_a_picker_of_a_pool_is_sent_responses_from_the_start_since_rewrites_may_come(pool: PoolOptions | None) -> None:
    settings = Settings(cluster=ClusterOptions(pool=pool), exchange=ExchangeSettings(may_ask=True))
    assert App(plan(), settings).changes_responses is (pool is not None)
