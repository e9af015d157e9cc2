"""The list of endpoints in a file's text."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.discovery.listing import read_listing
from epp.errors import ConfigError

GOOD = {"name": "vllm-0", "address": "10.0.0.7", "port": "8000"}


def listing(*entries: object) -> bytes:
    return json.dumps({"endpoints": entries}).encode()


def test_yaml_as_in_the_go_pickers_documentation() -> None:
    text = b"""
endpoints:
  - name: vllm-0
    namespace: prod
    address: 10.0.0.7
    port: "8000"
    labels: {role: decode}
  - {name: vllm-1, address: 10.0.0.8, port: 8001}
"""
    first, second = read_listing(text).endpoints
    assert (first.address, first.name, first.labels) == ("10.0.0.7:8000", "prod/vllm-0", {"role": "decode"})
    assert (second.address, second.name, second.labels) == ("10.0.0.8:8001", "default/vllm-1", {})


def test_json_says_the_same_as_yaml() -> None:
    assert read_listing(listing(GOOD)) == read_listing(b"endpoints: [{name: vllm-0, address: 10.0.0.7, port: '8000'}]")


@pytest.mark.parametrize(
    ("address", "written"),
    [("fd00::7", "[fd00::7]:8000"), ("[fd00::7]", "[fd00::7]:8000"), ("vllm.default.svc", "vllm.default.svc:8000")],
)
def test_ipv6_and_host_names_are_taken(address: str, written: str) -> None:
    assert read_listing(listing({"address": address, "port": 8000})).endpoints[0].address == written


def test_an_empty_list_is_a_list() -> None:
    assert read_listing(b"endpoints: []").endpoints == ()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({**GOOD, "adress": "x"}, "endpoints[1].adress: unknown field; did you mean address?"),
        ({"port": "8000"}, "endpoints[1]: missing field address"),
        ({**GOOD, "port": "http"}, "is not host:port"),
        ({**GOOD, "port": 0}, "is not host:port"),
        ({**GOOD, "address": "a b"}, "is not host:port"),
        ({**GOOD, "labels": {"a": 1}}, "endpoints[1].labels"),
        (GOOD, "10.0.0.7:8000 is listed already"),
        ("10.0.0.7:8000", "endpoints[1]"),
    ],
)
def test_a_bad_entry_is_skipped_with_a_sentence_and_the_others_stay(entry: object, reason: str) -> None:
    found = read_listing(listing(GOOD, entry))
    assert [e.address for e in found.endpoints] == ["10.0.0.7:8000"]
    assert len(found.skipped) == 1
    assert found.skipped[0].startswith("endpoints[1]")
    assert reason in found.skipped[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "holds nothing; it must be a mapping that starts with endpoints"),
        (b"- a", "holds a list"),
        (b"endpoints: {}", "not a list"),
        (b"servers: []", "servers: unknown field"),
        (b'{"endpoints": [', "not YAML"),
        (b"endpoints: [{address: 10.0.0.7, port: 8000}, {addr", "not YAML"),
        (b"\xff\xfe", "not UTF-8"),
        (listing({"port": 1}, {"port": 2}), "none of the 2 entries can be used; the first: endpoints\\[0\\]"),
    ],
)
def test_a_text_without_a_usable_list_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_listing(text)


@given(st.binary(max_size=60) | st.text("endpoits: []{}-\n\"',&*", max_size=40).map(str.encode))
def test_any_bytes_are_a_list_or_refused(raw: bytes) -> None:
    with suppress(ConfigError):
        assert read_listing(raw).endpoints is not None
