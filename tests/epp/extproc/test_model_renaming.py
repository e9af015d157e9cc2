"""The client's name of the model is put back, and nothing else changes, however a response is cut into pieces."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.extproc.model_renaming import DocumentNames, EventNames, Renamer, renamer

ENGINE, CLIENT = 'en"gine/é', "cli\\ent 名"


class Text(NamedTuple):
    """Return random JSON, and the same with the names replaced."""

    sent: str
    wanted: str


def both(text: str) -> Text:
    return Text(text, text)


def joined(*parts: Text | str) -> Text:
    texts = [both(part) if isinstance(part, str) else part for part in parts]
    return Text("".join(t.sent for t in texts), "".join(t.wanted for t in texts))


def escaped(text: str) -> str:
    """Return a JSON string with every letter escaped."""
    units = text.encode("utf-16-be").hex()
    return '"' + "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)) + '"'


def spelled(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False), escaped(text)])


spaces = st.text(" \t\n\r", max_size=2)
words = st.sampled_from(["model", ENGINE, "response", "message", 'say "model": "m"', "", "\\", "x" * 300, "{[", "]}"])
strings = words.flatmap(spelled)
scalars = strings | st.sampled_from(["0", "-1.5e7", "true", "null"])


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda items: f"[{','.join(items)}]")


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.builds("{}{}{}:{}{}".format, spaces, strings, spaces, spaces, values)
    return st.lists(members, max_size=3).map(lambda items: "{" + ",".join(items) + "}")


values = st.recursive(scalars, lambda inner: lists(inner) | objects(inner), max_leaves=8)
model_keys = spelled("model")
other_keys = st.sampled_from(["id", "models", "Model", ENGINE, "choices", "k" * 100]).flatmap(spelled)
named = st.one_of(
    st.builds(Text, spelled(ENGINE), st.just(json.dumps(CLIENT, ensure_ascii=False))),
    (st.sampled_from(["another", ENGINE + "x", ENGINE[:-1], "y" * 500]).flatmap(spelled) | values)
    .filter(lambda text: not text.startswith('"') or json.loads(text) != ENGINE)
    .map(both),
)
members = st.one_of(
    st.builds(joined, spaces, model_keys, spaces, st.just(":"), spaces, named, spaces),
    st.builds(joined, spaces, other_keys, spaces, st.just(":"), spaces, values, spaces),
)


def document_of(items: list[Text]) -> Text:
    parts: list[Text | str] = ["{"]
    for i, item in enumerate(items):
        parts += [",", item] if i else [item]
    return joined(*parts, "}")


documents = st.builds(joined, spaces, st.lists(members, max_size=5).map(document_of), spaces)


def fed(names: Renamer, body: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    pieces = [names.feed(body[a:b]) for a, b in pairwise(edges)]
    return b"".join([*pieces, names.end()])


cuts = st.lists(st.integers(0, 10_000), max_size=12)


@given(documents, cuts)
def test_a_document_is_renamed_at_its_top_level_only(document: Text, cuts: list[int]) -> None:
    assert fed(DocumentNames(ENGINE, CLIENT), document.sent.encode(), cuts).decode() == document.wanted


@given(documents)
def test_a_document_may_come_byte_by_byte(document: Text) -> None:
    body = document.sent.encode()
    assert fed(DocumentNames(ENGINE, CLIENT), body, list(range(len(body)))).decode() == document.wanted


newlines = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def events(draw: st.DrawFn) -> Text:
    """Return one event with a document over one or several lines, among other fields."""
    newline = draw(newlines)
    document = draw(documents)
    before = draw(st.sampled_from(["", ": comment", "event: x", "id", 'data2: {"model"', "retry: 5"]))
    colon = draw(st.sampled_from(["data:", "data: "]))
    head = [before] if before else []
    lines = ([colon + line for line in text.replace("\r", "\n").split("\n")] for text in document)
    sent, wanted = (newline.join([*head, *data, "", ""]) for data in lines)
    return Text(sent, wanted)


streams = st.lists(st.one_of(events(), st.just(both("data: [DONE]\n\n")), st.just(both("\n"))), max_size=4)


@given(streams, cuts)
def test_every_event_is_renamed_at_its_top_level_only(stream: list[Text], cuts: list[int]) -> None:
    whole = joined(*stream)
    assert fed(EventNames(ENGINE, CLIENT), whole.sent.encode(), cuts).decode() == whole.wanted


@given(st.binary(max_size=300) | st.text('{}[]":,\\ modeln\r\n', max_size=60).map(str.encode), cuts, st.booleans())
def test_how_it_is_cut_changes_nothing_whatever_it_is(body: bytes, cuts: list[int], stream: bool) -> None:
    kind = EventNames if stream else DocumentNames
    whole = fed(kind("m", "n"), body, [])
    assert fed(kind("m", "n"), body, cuts) == whole
    assert fed(kind("m", "n"), body, list(range(len(body)))) == whole


@given(st.binary(max_size=300), cuts, st.booleans())
def test_what_does_not_name_the_model_passes_byte_for_byte(body: bytes, cuts: list[int], stream: bool) -> None:
    names: Renamer = EventNames(ENGINE, CLIENT) if stream else DocumentNames(ENGINE, CLIENT)
    assert fed(names, body, cuts) == body


@pytest.mark.parametrize("key", ["response", "message"])
def test_events_of_other_apis_name_the_model_one_level_below(key: str) -> None:
    event = 'data: {"type": "t", "%s": {"id": 1, "model": "%s", "x": {"model": "m"}}, "model": "%s"}\n\n'
    assert fed(EventNames("m", "n"), (event % (key, "m", "m")).encode(), []) == (event % (key, "n", "n")).encode()


def test_an_event_that_breaks_off_inside_a_string_does_not_swallow_the_next() -> None:
    body = b'data: {"model": "m\n\ndata: {"model": "m"}\n\n'
    assert fed(EventNames("m", "n"), body, []) == b'data: {"model": "m\n\ndata: {"model": "n"}\n\n'


def test_a_long_value_is_not_kept_back() -> None:
    names = DocumentNames("m", "n")
    held = len(b'{"model":' + b'"' + b"x" * 1000) - len(names.feed(b'{"model":"' + b"x" * 1000))
    assert held == 0
    assert names.feed(b'x"}') + names.end() == b'x"}'


def test_what_is_kept_back_is_never_longer_than_the_name_can_be_written() -> None:
    names = DocumentNames("mm", "n")
    sent = b'{"model":"' + b"\\u006d" * 2
    assert len(sent) - len(names.feed(sent)) <= 6 * 2 + 2
    assert names.feed(b'"}') == b'"n"}'


def test_deep_nesting_takes_no_memory() -> None:
    names = DocumentNames("m", "n")
    body = b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b',"model":"m"}'
    assert names.feed(body) == body.replace(b'"m"', b'"n"')


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("application/json", DocumentNames),
        ("Application/JSON; charset=utf-8", DocumentNames),
        ("application/problem+json", DocumentNames),
        ("text/event-stream; charset=utf-8", EventNames),
        ("text/plain", type(None)),
        ("", type(None)),
    ],
)
def test_the_content_type_says_how_a_response_is_read(content_type: str, kind: type) -> None:
    assert isinstance(renamer(content_type, "m", "n"), kind)
