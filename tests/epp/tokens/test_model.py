"""A model's folder: the tokens around texts, the chat template, the cache, and invalid folders."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from epp.errors import ConfigError
from epp.tokens.model.answer import NoTokenIds
from epp.tokens.model.chat import Unrendered
from epp.tokens.model.model import ModelTokenizer

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


def ids(model: ModelTokenizer, path: str = COMPLETION, **body: Any) -> list[int]:
    texts = model.texts(path, json.dumps(body).encode(), 1)
    partly = model.look_up(texts)
    (whole,) = model.put_together(texts, partly, model.encode(partly))
    return list(array("I", whole))


def copied(folder: Path, to: Path, **config: Any) -> Path:
    """Return the model with another configuration of its tokenizer."""
    (to / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    written = json.loads((folder / "tokenizer_config.json").read_bytes()) | config
    (to / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in written.items() if v is not None}))
    return to


def test_completions_get_special_tokens_and_chats_none_but_their_templates(trained: Callable[[str], Path]) -> None:
    model = ModelTokenizer(trained("headers"), 1 << 20)
    begin = model.vocabulary._tokenizer.token_to_id("<|begin_of_text|>")
    assert ids(model, prompt="x")[0] == begin
    assert ids(model, prompt="x", add_special_tokens=False)[0] != begin
    chat = ids(model, CHAT, messages=[{"role": "user", "content": "x"}])
    assert (chat[0], chat.count(begin)) == (begin, 1)
    twice = ids(model, CHAT, messages=[{"role": "user", "content": "x"}], add_special_tokens=True)
    assert twice == [begin, *chat]


@pytest.mark.parametrize(("config", "first", "last"), [
    ({"add_bos_token": False}, None, None),
    ({"add_bos_token": True}, "<|begin_of_text|>", None),
    ({"add_eos_token": True}, None, "<|eot_id|>"),
    ({"add_bos_token": True, "add_eos_token": True}, "<|begin_of_text|>", "<|eot_id|>"),
    ({"add_bos_token": True, "bos_token": None}, None, None),
    ({}, "<|begin_of_text|>", None),
])  # fmt: skip
def test_the_configuration_says_what_is_put_around_else_the_tokenizer(
    config: dict[str, Any], first: str | None, last: str | None, trained: Callable[[str], Path], tmp_path: Path
) -> None:
    model = ModelTokenizer(copied(trained("headers"), tmp_path, **config), 1 << 20)
    number = model.vocabulary._tokenizer.token_to_id
    bare = ids(model, prompt="x y", add_special_tokens=False)
    before = [] if first is None else [number(first)]
    assert ids(model, prompt="x y") == [*before, *bare, *([] if last is None else [number(last)])]


def test_tokens_that_only_the_configuration_names_are_tokens(trained: Callable[[str], Path], tmp_path: Path) -> None:
    known = ModelTokenizer(trained("chatml"), 1 << 20)
    added = {"700": {"content": "<new>", "special": True}}
    model = ModelTokenizer(
        copied(trained("chatml"), tmp_path, added_tokens_decoder=added, unk_token="<unknown>"), 1 << 20
    )
    assert [len(ids(each, prompt="<new><unknown>")) for each in (known, model)] == [pytest.approx(12, abs=6), 2]
    assert "<new>" in model.vocabulary.cuts.tokens


def test_special_tokens_of_an_older_file_are_in_templates(trained: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copied(trained("headers"), tmp_path, bos_token=None)
    (folder / "special_tokens_map.json").write_text('{"bos_token": {"content": "<|begin_of_text|>"}, "x": 1}')
    chat = {"messages": [{"role": "user", "content": "x"}]}
    before = ids(ModelTokenizer(trained("headers"), 1 << 20), CHAT, **chat)
    assert ids(ModelTokenizer(folder, 1 << 20), CHAT, **chat) == before


def test_a_template_file_wins_over_the_configurations_and_the_engines_own_over_both(
    trained: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = copied(trained("chatml"), tmp_path)
    body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
    (folder / "chat_template.jinja").write_text("file")
    assert ModelTokenizer(folder, 1).texts(CHAT, body, 1)[0].text == "file"
    other = tmp_path / "other.jinja"
    other.write_text("{{ how }}")
    model = ModelTokenizer(folder, 1, template=other, arguments={"how": "given"})
    assert model.texts(CHAT, body, 1)[0].text == "given"


def test_of_several_templates_the_one_for_tools_is_for_tools(trained: Callable[[str], Path], tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }}"}]
    model = ModelTokenizer(copied(trained("chatml"), tmp_path, chat_template=templates), 1)
    for tools, text in ((None, "plain"), ([{"function": {"name": "f"}}], "1"), ([], "0")):
        body = json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": tools}).encode()
        assert model.texts(CHAT, body, 1)[0].text == text


@pytest.mark.parametrize("name", ["gpt_oss", "deepseek_v32", "kimi_k3"])
def test_models_that_the_engine_gives_no_template_to_have_none_here(
    name: str, trained: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = copied(trained("chatml"), tmp_path)
    (folder / "config.json").write_text(json.dumps({"model_type": name}))
    model = ModelTokenizer(folder, 1)
    assert name in (model.no_chats or "")
    assert ids(model, prompt="x")
    with pytest.raises(Unrendered) as caught:
        ids(model, CHAT, messages=[{"role": "user", "content": "x"}])
    assert caught.value.why is NoTokenIds.UNSUPPORTED


@pytest.mark.parametrize(("file", "text", "message"), [
    ("tokenizer_config.json", "{", r"tokenizer_config\.json: "),
    ("tokenizer_config.json", '{"chat_template": [{"name": "rag", "template": "x"}]}', "none is named 'default'"),
    ("tokenizer_config.json", '{"chat_template": "{% if %}"}', "no chat template"),
    ("tokenizer.json", "{}", r"tokenizer\.json: no tokenizer"),
    ("config.json", "[]", r"config\.json: "),
    ("chat_template.jinja", "\udcff", r"chat_template\.jinja: cannot be read"),
])  # fmt: skip
def test_a_folder_that_is_none_is_an_error_that_names_the_file(
    file: str, text: str, message: str, trained: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = copied(trained("chatml"), tmp_path)
    (folder / file).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=message):
        ModelTokenizer(folder, 1)


def test_what_is_remembered_is_bounded_and_the_oldest_goes(trained: Callable[[str], Path]) -> None:
    model = ModelTokenizer(trained("chatml"), 20_000)
    prompts = [f"the {number} " * 400 for number in range(40)]
    for prompt in prompts:
        ids(model, prompt=prompt)
        model.segments.check()
    assert 0 < model.segments.used_bytes <= 20_000
    newest, oldest = (model.look_up(model.texts(COMPLETION, json.dumps({"prompt": prompt}).encode(), 1))
                      for prompt in (prompts[-1], prompts[0]))  # fmt: skip
    assert (newest.missing, bool(oldest.missing)) == ([], True)
