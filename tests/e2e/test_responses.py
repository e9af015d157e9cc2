"""The changes of responses by the picker through a real Envoy, standalone and in full duplex."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from typing import Any

import pytest

from epp.standalone.settings import ResponseMode
from tests.e2e.site.background import Background
from tests.e2e.site.engine import PIECES, Engine
from tests.e2e.site.gateway import TOLD
from tests.e2e.site.router import LOOPBACK, Router, behind_gateway, router

pytestmark = pytest.mark.e2e

RULES = [{"rules": [{"matches": [{"model": {"value": "alias"}}], "targets": [{"modelRewrite": "engine/model"}]}]}]
PLUGIN = """
from scorers.base import Scorer, NoParameters

class Stamp(Scorer[NoParameters]):
    type_name = "stamp"

    def score(self, request, candidates):
        return [1.0] * len(candidates)

    def response_headers(self, request, candidate):
        return {"x-served-by": candidate.address}
"""


def config(**more: Any) -> str:
    return json.dumps({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"} | more)


@pytest.fixture(scope="module")
def plugin_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "stamp_plugin.py").write_text(PLUGIN)
    info = folder / "stamp-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stamp\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tierwise.plugins]\nstamp = stamp_plugin:Stamp\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


SETTINGS = {
    "plain lean": {"config_text": config()},
    "lean": {"config_text": config(inferenceModelRewrites=RULES)},
    "stamped": {"config_text": config(plugins=[{"type": "stamp"}])},
    "full": {"config_text": config(inferenceModelRewrites=RULES), "response_mode": ResponseMode.FULL},
    "sampled": {"config_text": config(inferenceModelRewrites=RULES), "sample_rate": 1.0},
}


@pytest.fixture(scope="module", params=[*SETTINGS, "duplex"])
def shared(
    request: pytest.FixtureRequest,
    loop: Background,
    two: list[Engine],
    tmp_path_factory: pytest.TempPathFactory,
    plugin_installed: None,
) -> Iterator[Router]:
    if request.param == "duplex":
        with behind_gateway(
            loop, two, tmp_path_factory.mktemp("gateway"), config_text=SETTINGS["lean"]["config_text"]
        ) as running:
            yield running
    else:
        with router(loop, two, **({"sample_rate": 0.0} | SETTINGS[request.param])) as running:
            yield running


@pytest.fixture
def rewrite(shared: Router, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of a request for ``alias``, whose model the rules or the client's header rewrite."""
    rules = bool(shared.picker.core.plan.rewrites)
    return {"model": "alias"} | ({} if rules else {"extra_headers": {"x-llm-d-model-name-rewrite": "engine/model"}})


def test_a_response_names_the_model_that_the_client_asked_for(
    routed: Router, engines: list[Engine], rewrite: dict[str, Any]
) -> None:
    answer = routed.client.completions.create(prompt="x", **rewrite)
    assert answer.model == "alias"
    assert answer.usage is not None
    assert [body["model"] for engine in engines for body in engine.bodies] == ["engine/model"]


def test_every_event_names_the_model_that_the_client_asked_for(routed: Router, rewrite: dict[str, Any]) -> None:
    pieces = list(routed.client.completions.create(prompt="x", stream=True, **rewrite))
    assert [piece.model for piece in pieces] == ["alias"] * PIECES


def test_the_first_event_arrives_before_the_last_is_made(
    routed: Router, engines: list[Engine], rewrite: dict[str, Any]
) -> None:
    for engine in engines:
        routed.loop.call(engine.gate.clear)
    pieces = iter(routed.client.completions.create(prompt="x", stream=True, **rewrite))
    assert next(pieces).model == "alias"
    assert len(routed.picker.ledger) == 1
    for engine in engines:
        routed.loop.call(engine.gate.set)
    assert len(list(pieces)) == PIECES - 1


def test_other_models_keep_their_name(routed: Router) -> None:
    assert routed.client.completions.create(prompt="x", model="other").model == "other"


def test_a_compressed_response_passes_as_it_is(routed: Router, engines: list[Engine], rewrite: dict[str, Any]) -> None:
    for engine in engines:
        engine.compressing = True
    assert routed.client.completions.create(prompt="x", **rewrite).model == "engine/model"


def test_a_request_is_in_flight_until_its_response_has_ended(routed: Router, engines: list[Engine]) -> None:
    for engine in engines:
        routed.loop.call(engine.gate.clear)
    pieces = iter(routed.client.completions.create(prompt="x", model="other", stream=True))
    next(pieces)
    assert len(routed.picker.ledger) == 1
    assert not routed.picker.ledger._leaving
    for engine in engines:
        routed.loop.call(engine.gate.set)
    list(pieces)


@pytest.mark.parametrize("shared", ["stamped"], indirect=True)
def test_a_plugins_headers_reach_the_client(routed: Router, engines: list[Engine]) -> None:
    raw = routed.client.completions.with_raw_response.create(prompt="x", model="m")
    assert raw.headers["x-served-by"] == raw.parse().choices[0].text
    status, headers = ask(routed, b'{"model": "m", "prompt": "x"}')
    assert status == 200
    assert int(headers["content-length"] or 0) > 0


def ask(routed: Router, content: bytes) -> tuple[int, HTTPMessage]:
    with closing(HTTPConnection(LOOPBACK, routed.port, timeout=15)) as connection:
        connection.request("POST", "/v1/completions", content)
        response = connection.getresponse()
        response.read()
        return response.status, response.headers


COST = {
    "type": "request-attribute-reporter",
    "parameters": {"attributes": [{"key": {"name": "cost"}, "expression": "usage.prompt_tokens * 100.0"}]},
}


def test_a_gateway_is_told_a_number_made_of_usage(loop: Background, engines: list[Engine], tmp_path: Path) -> None:
    with behind_gateway(loop, engines, tmp_path, config_text=config(plugins=[COST])) as running:
        assert running.client.completions.create(prompt="x", model="m").usage is not None
    assert (tmp_path / TOLD).read_text().split() == ["700"]


def test_a_lean_proxy_of_our_own_takes_the_number_too(loop: Background, engines: list[Engine]) -> None:
    with router(loop, engines, sample_rate=0.0, config_text=config(plugins=[COST])) as running:
        assert running.client.completions.create(prompt="x", model="m").usage is not None
        running.settle()
        assert not running.picker.core.plan.profile.failures
