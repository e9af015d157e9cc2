"""The flags that select pods, and the name of the pool that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epp.discovery.options import PodOptions, owner_of
from epp.errors import ConfigError
from epp.flags.arguments import Given
from epp.kube.election.term import Term
from epp.server.flags import serve_options
from epp.server.settings import ClusterOptions

SELECTED: Given = {"endpoint-selector": "app=vllm", "endpoint-target-ports": (8000, 8001)}


def options(environment: dict[str, str] | None = None, **given: Any) -> Any:
    return serve_options(
        {**SELECTED, **{name.replace("_", "-"): value for name, value in given.items()}}, environment or {}
    )


def test_pods_are_those_of_the_namespace_of_the_flag_or_of_the_variable() -> None:
    assert options().picker.cluster == ClusterOptions(pods=PodOptions(selector="app=vllm", ports=(8000, 8001)))
    assert options({"NAMESPACE": "llm"}).picker.cluster.namespace == "llm"
    assert options({"NAMESPACE": "llm"}, pool_namespace="other").picker.cluster.namespace == "other"


def test_an_empty_namespace_is_no_namespace() -> None:
    assert options(pool_namespace="").picker.cluster.namespace is None
    assert options({"NAMESPACE": "llm"}, pool_namespace="").picker.cluster.namespace == "llm"


def test_the_environment_names_a_configuration_where_no_flag_does() -> None:
    variable = {"TIERWISE_CONFIG_FILE": "/etc/epp/mine.yaml"}
    assert options(variable).config.file == Path("/etc/epp/mine.yaml")
    assert options(variable, config_file=Path("other.yaml")).config.file == Path("other.yaml")
    assert options(variable, config_text="{}").config.file is None
    assert options({"TIERWISE_CONFIG_FILE": ""}).config.file is None


def test_without_the_flags_there_are_no_pods() -> None:
    assert serve_options({}, {}).picker.cluster.pods is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"endpoint_target_ports": ()}, "needs --endpoint-target-ports"),
        ({"endpoint_selector": ""}, "--endpoint-selector is empty and would select every pod"),
        ({"endpoint_target_ports": tuple(range(1, 10))}, "has 9 ports, and a pod has at most 8"),
        ({"endpoint_target_ports": (8000, 8000)}, "has 8000 twice"),
        (
            {"endpoint_selector": "a in b"},
            "--endpoint-selector: 'a in b': an opening parenthesis is missing at character 6",
        ),
        ({"endpoint": (("h:1",),)}, "--endpoint-selector and --endpoint each say"),
        ({"pool_namespace": "a/../b"}, "'a/../b' is not the name of a namespace"),
        ({"pool_namespace": "Llm"}, "'Llm' is not the name of a namespace"),
        ({"pool_name": "p"}, "--endpoint-selector and --pool-name each say"),
        ({"pool_name": "p", "endpoint_target_ports": ()}, "--endpoint-selector and --pool-name each say"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        options(**given)


def test_ports_without_a_selector_are_refused() -> None:
    with pytest.raises(ConfigError, match="has no meaning without --endpoint-selector; give both"):
        serve_options({"endpoint-target-ports": (8000,)}, {})


@pytest.mark.parametrize(
    ("pod", "pool"),
    [
        ("my-epp-7d9fbb5c4f-x2v9z", "my-epp"),
        ("my-epp-0", "my-epp"),
        ("my-epp", "my-epp"),
        ("a-b-c", "a-b-c"),
        ("", None),
    ],
)
def test_the_pool_is_named_after_what_made_the_pickers_pod(pod: str, pool: str | None) -> None:
    assert owner_of(pod) == pool
    assert options({"POD_NAME": pod}).picker.pool_name == (pool or "epp")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (SELECTED, "beside --endpoint-selector needs POD_NAME in env"),
        ({"endpoint": (("h:1",),)}, "needs --pool-name"),
        ({}, "needs --pool-name"),
    ],
)
def test_pickers_of_two_pools_share_no_lease_by_a_default_name(given: Given, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"--ha-enable-leader-election {sentence}"):
        serve_options({**given, "ha-enable-leader-election": True}, {})


def test_a_lease_is_named_after_the_pool_or_the_pickers_deployment() -> None:
    picker = options({"POD_NAME": "my-epp-7d9fbb5c4f-x2v9z"}, ha_enable_leader_election=True).picker
    assert (picker.pool_name, picker.cluster.election) == ("my-epp", Term())
    given: Given = {"endpoint": (("h:1",),), "pool-name": "llama", "ha-enable-leader-election": True}
    assert serve_options(given, {}).picker.pool_name == "llama"
