"""Plugins that other packages install."""

from __future__ import annotations

from pathlib import Path

import pytest

from epp.config.load import load_text
from epp.config.not_built import NOT_BUILT
from epp.config.wiring.build import build
from epp.config.wiring.kinds import known_kinds
from epp.errors import ConfigError

MODULE = """
import msgspec
from scorers.base import NoParameters, Scorer

class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    favourite_port: int = 8000

class Favourite(Scorer[Parameters]):
    type_name = "favourite-scorer"
    Parameters = Parameters

    def score(self, request, candidates):
        return [float(c.address.endswith(f":{self.parameters.favourite_port}")) for c in candidates]

class Usurper(Favourite):
    type_name = "queue-scorer"

class Nameless(Scorer[NoParameters]):
    def score(self, request, candidates):
        return [0.0 for _ in candidates]

word = "not a class"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the path with a package's module; ``declare`` adds an entry point to it."""
    (tmp_path / "favourites_of_ours.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def declare(folder: Path, attribute: str, module: str = "favourites_of_ours") -> None:
    info = folder / "favourites-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: favourites\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tierwise.plugins]\nfavourite = {module}:{attribute}\n")


def test_an_installed_packages_scorer_is_configured_like_ours(installed: Path) -> None:
    declare(installed, "Favourite")
    text = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: favourite-scorer, parameters: "
    made = build(load_text(text + "{favouritePort: 9}}]"))
    assert made.profile.scorers[0][0].parameters.favourite_port == 9
    with pytest.raises(ConfigError, match=r"plugins\[0\]\.parameters\.favPort: unknown field; did you mean favouriteP"):
        build(load_text(text + "{favPort: 9}}]"))


@pytest.mark.parametrize(
    ("attribute", "sentence"),
    [
        ("Usurper", r"takes the type name 'queue-scorer', which scorers\.load\.queue has"),
        ("Nameless", "has no type_name"),
        ("word", "must be a class derived from Filter, Producer, Scorer, Picker or Extractor"),
        ("Missing", "cannot be loaded: .*; mend or uninstall the package"),
    ],
)
def test_an_unusable_entry_point_is_named(installed: Path, attribute: str, sentence: str) -> None:
    declare(installed, attribute)
    with pytest.raises(
        ConfigError, match=rf"^entry point 'favourite' \(favourites_of_ours:{attribute}\) of favourites {sentence}$"
    ):
        known_kinds()


def test_a_module_that_is_missing_is_named(installed: Path) -> None:
    declare(installed, "Favourite", module="nowhere_at_all")
    with pytest.raises(ConfigError, match="cannot be loaded: No module named 'nowhere_at_all'"):
        known_kinds()


def test_no_plugin_is_both_known_and_not_built() -> None:
    assert not NOT_BUILT & set(known_kinds())


HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plugins: [{type: fifo-sjf-xyz-scorer}]", "the nearest are "),
        ("plugins: [{type: vvvvvvvvvvvv-picker}]", "random-picker, tier-cost-picker, weighted-random-picker"),
        ("plugins: [{type: cheapest, name: p}]\nrequestHandler: {parsers: [{pluginRef: p}]}", "-parser"),
        ("plugins: [{type: cheapest, name: d}]\nsaturationDetector: {pluginRef: d}",
         "there are concurrency-detector, utilization-detector"),
        ("plugins: [{name: d}]\nsaturationDetector: {pluginRef: d}",
         "there are concurrency-detector, utilization-detector"),
        ("plugins: [{type: disagg-profile-handler}]", "single-profile-handler"),
        ("plugins: [{name: queue-scorer}]", "did you mean queue-scorer?"),
    ],
)  # fmt: skip
def test_a_type_that_is_none_is_answered_with_the_nearest_of_the_kind_that_its_place_takes(
    text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        build(load_text(HEAD + text))
    sentence = str(refusal.value)
    assert said in sentence
    assert len(sentence) < 300
    if "scorer" in text:
        assert not any(other in sentence for other in ("-parser", "-filter", "-picker"))


@pytest.mark.parametrize("name", sorted(NOT_BUILT))
def test_the_sentence_about_a_plugin_of_the_go_picker_is_short(name: str) -> None:
    with pytest.raises(ConfigError, match="does not exist here yet; take it out, or ") as refusal:
        build(load_text(f"{HEAD}plugins: [{{type: {name}}}]"))
    assert len(str(refusal.value)) < 400
