"""Routing by the models that endpoints serve, as the configuration and the command select it."""

from __future__ import annotations

import pytest

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build, plan_from
from epp.errors import ConfigError
from scorers.labels.served_model_filter import ServedModelFilter

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
LISTED = "plugins: [{type: served-model-filter}, {type: queue-scorer}]\nschedulingProfiles:\n- name: d\n  plugins: "
OFF = "plugins: [{type: served-model-filter, parameters: {enabled: false}}, {type: queue-scorer}]\n"


def plan(text: str, *, by_model: bool) -> Plan:
    return build(load_text(HEAD + text), by_model=by_model)


@pytest.mark.parametrize("by_model", [False, True])
def test_without_a_configuration_requests_go_by_model(by_model: bool) -> None:
    made = plan_from(None, None, by_model=by_model)
    assert isinstance(made.served, ServedModelFilter)
    assert "filter served-model-filter" in made.summary
    assert not made.warnings


def test_a_configuration_that_does_not_name_the_filter_goes_by_it_in_standalone_only() -> None:
    text = "plugins: [{type: queue-scorer}]\n"
    assert plan(text, by_model=False).served is None
    implied = plan(text, by_model=True)
    assert implied.served is not None
    assert "filter served-model-filter" in implied.summary


def test_a_profile_that_lists_it_goes_by_it() -> None:
    made = plan(LISTED + "[{pluginRef: queue-scorer}, {pluginRef: served-model-filter}]", by_model=False)
    assert made.served is made.instances["served-model-filter"]
    assert made.profile.filters == (), "it is applied once, before all others"


def test_one_that_is_declared_and_not_listed_counts_in_standalone_only() -> None:
    text = LISTED + "[{pluginRef: queue-scorer}]"
    unlisted = plan(text, by_model=False)
    assert unlisted.served is None
    assert unlisted.warnings == ("plugins[0]: 'served-model-filter' is declared, and nothing refers to it",)
    made = plan(text, by_model=True)
    assert made.served is made.instances["served-model-filter"]
    assert not made.warnings


@pytest.mark.parametrize("by_model", [False, True])
def test_it_can_be_switched_off(by_model: bool) -> None:
    made = plan(OFF, by_model=by_model)
    assert made.served is None
    assert not any("served-model-filter" in line for line in made.lines)


def test_two_of_them_are_refused() -> None:
    with pytest.raises(ConfigError, match="both go by served models; keep one"):
        plan("plugins: [{type: served-model-filter}, {type: served-model-filter, name: b}]\n", by_model=True)
