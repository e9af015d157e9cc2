"""Which paths of the engines the Envoy of the chart standalone leaves open: those of ``tierwise standalone``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from epp.client import Api
from epp.standalone.binary import find_envoy
from epp.standalone.local_replies import Reply, details_begin_with, mapper
from epp.standalone.paths import closed_pattern, open_pattern
from tests.charts.rendering import Object, pool_values, refusal, render

WHY = "%LOCAL_REPLY_BODY%"


def manager(*opened: str) -> Object:
    """Return what the rendered Envoy does with clients' requests."""
    values = {**pool_values("router"), "tierwise": {"openPaths": list(opened)}}
    [clients] = [
        each
        for each in render("standalone", values).envoy["static_resources"]["listeners"]
        if each["name"] == "clients"
    ]
    found: Object = clients["filter_chains"][0]["filters"][0]["typed_config"]
    return found


def routes(*opened: str) -> list[Any]:
    found: list[Any] = manager(*opened)["route_config"]["virtual_hosts"][0]["routes"]
    return found


@pytest.mark.parametrize("opened", [(), ("/metrics",), ("/metrics/", "/v1/loads"), ("/v1",)])
def test_the_routes_match_what_the_command_leaves_open(opened: tuple[str, ...]) -> None:
    found = routes(*opened)
    plain = tuple(path.rstrip("/") for path in opened)
    closed = closed_pattern(plain)
    refused, passing, last = found[: closed is not None], found[closed is not None : -1], found[-1]
    assert [route["match"]["safe_regex"]["regex"] for route in refused] == [closed] * len(refused)
    assert [route["match"]["safe_regex"]["regex"] for route in passing] == [open_pattern(plain)] * 2
    assert last["match"] == {"prefix": "/"}
    for route in (*refused, last):
        assert route["direct_response"]["status"] == 404
        assert route["typed_per_filter_config"]["envoy.filters.http.ext_proc"]["disabled"] is True


def test_all_opens_every_path() -> None:
    assert [route["match"].get("prefix") for route in routes("all")] == ["/", "/"]
    assert all("direct_response" not in route for route in routes("all"))


@pytest.mark.parametrize("path", ["metrics", "/v1/*", "/a?b=1", "//x"])
def test_what_is_no_path_is_refused(path: str) -> None:
    assert path in refusal("standalone", {**pool_values("router"), "tierwise": {"openPaths": [path]}})


def test_a_refusal_has_the_form_of_the_clients_api() -> None:
    reply = Reply(details_begin_with("direct_response"), 404, WHY)
    rendered = manager()["local_reply_config"]["mappers"][:3]
    assert rendered == [mapper(reply, api) for api in (Api.GRPC, Api.ANTHROPIC, Api.OPENAI)]


def test_envoy_accepts_the_rendered_configuration(tmp_path: Path) -> None:
    written = tmp_path / "envoy.json"
    written.write_text(json.dumps(render("standalone", pool_values("router")).envoy))
    done = subprocess.run(
        [str(find_envoy(None)), "--mode", "validate", "-c", str(written)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
