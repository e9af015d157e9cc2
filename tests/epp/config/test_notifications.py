"""Sources of Kubernetes objects in the configuration, and the plugins that are bound to them."""

from __future__ import annotations

import json

import pytest

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build
from epp.errors import ConfigError

SOURCE = {"type": "k8s-notification-source", "parameters": {"version": "v1", "kind": "Node"}}
EXTRACTOR = {"type": "topology-extractor"}
BOUND = [{"pluginRef": "k8s-notification-source", "extractors": [{"pluginRef": "topology-extractor"}]}]


def plan(plugins: object, sources: object) -> Plan:
    text = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": plugins}
    return build(load_text(json.dumps({**text, "dataLayer": {"sources": sources}})))


def test_a_source_passes_a_kind_to_the_extractors_that_are_bound_to_it() -> None:
    made = plan([SOURCE, EXTRACTOR], BOUND)
    (found,) = made.notifications
    assert (found.path, found.group, found.version, found.kind) == ("dataLayer.sources[0]", "", "v1", "Node")
    assert found.extractors == (made.instances["topology-extractor"],)
    assert made.scrape is not None, "the engines' pages are read beside it"
    assert not made.warnings


def test_a_source_without_extractors_is_not_read_and_warned_of() -> None:
    made = plan([SOURCE], [{"pluginRef": "k8s-notification-source"}])
    assert made.notifications == ()
    assert made.warnings == (
        "dataLayer.sources[0].extractors: none, so the objects are not read; bind one, or take the source out",
    )


@pytest.mark.parametrize(
    ("plugins", "sources", "sentence"),
    [
        (
            [{**SOURCE, "parameters": {"kind": "Node"}}, EXTRACTOR], BOUND,
            "plugins[0].parameters.version: missing; it must be written",
        ),
        (
            [{**SOURCE, "parameters": {"version": "v1"}}, EXTRACTOR], BOUND,
            "plugins[0].parameters.kind: missing; it must be written",
        ),
        ([{"type": SOURCE["type"]}, EXTRACTOR], BOUND, "plugins[0].parameters.version: missing"),
        (
            [SOURCE, {"type": "core-metrics-extractor", "name": "topology-extractor"}], BOUND,
            "dataLayer.sources[0].extractors[0].pluginRef: 'topology-extractor' is of type core-metrics-extractor; an",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused_by_its_key_path(plugins: object, sources: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(plugins, sources)
    assert str(caught.value).startswith(sentence)
