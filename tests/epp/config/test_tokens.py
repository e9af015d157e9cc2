"""The source of token ids, as configurations select it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build, plan_from
from epp.config.wiring.kinds import known_kinds
from epp.errors import ConfigError
from epp.server.core import Core
from epp.server.settings import Settings
from epp.tokens.model.answer import NoTokenIds
from epp.tokens.opened import OpenedSource, open_source
from epp.tokens.plan import RemotePlan
from epp.tokens.source import TokenRequest
from scorers.base import Candidate, NoParameters, Producer, Request
from tests.epp.tokens.trained import KINDS

HEADER = "{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: "
UNREAD = "plugins[0]: 'token-producer' counts the prompts' tokens; no plugin here reads the tokens"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KINDS["chatml"](tmp_path_factory.mktemp("model"))


class Reads(Producer[NoParameters]):
    type_name = "reads-tokens"
    reads_tokens = True

    @override
    def produce(self, request: Request, candidates: Sequence[Candidate]) -> None: ...

    @override
    def picked(self, request: Request, candidate: Candidate) -> None: ...


def plan(parameters: str, *, more: str = "", before: Plan | None = None) -> Plan:
    config = load_text(f"{HEADER}[{{type: token-producer, parameters: {parameters}}}{more}]}}")
    return build(config, kinds={**known_kinds(), Reads.type_name: Reads}, before=before)


def remote(parameters: str) -> RemotePlan:
    tokens = plan(parameters).tokens
    assert tokens is not None
    assert isinstance(tokens.backend, RemotePlan)
    return tokens.backend


def test_without_a_backend_nothing_is_tokenized() -> None:
    assert plan("{estimate: {}}").tokens is None


@pytest.mark.parametrize(("parameters", "url", "model"), [
    ("{vllm: {}}", "http://localhost:8000", ""),
    ("{modelName: m}", "http://localhost:8000", "m"),
    ("{modelName: m, vllm: {url: 'https://render:8443/'}}", "https://render:8443", "m"),
    ("{vllm: {http: 'http://older:1'}}", "http://older:1", ""),
    ("{vllm: {fromPool: true}}", "", ""),
])  # fmt: skip
def test_a_server_is_asked_where_the_go_pickers_parameters_say(parameters: str, url: str, model: str) -> None:
    backend = remote(parameters)
    assert (backend.url, backend.model_name, backend.renders) == (url, model, True)


def test_a_request_waits_for_a_server_as_long_as_its_timeout_says() -> None:
    for parameters, timeout_s in (
        ("{vllm: {}}", 5.0),
        ("{vllm: {timeout: 2s}}", 2.0),
        ("{vllm: {}, timeout: 1s}", 1.0),
    ):
        tokens = plan(parameters).tokens
        assert tokens is not None
        assert tokens.limits.timeout_s == timeout_s


@pytest.mark.parametrize(("parameters", "message"), [
    ("{vllm: {}, estimate: {}}", "plugins[0].parameters.vllm: and estimate exclude each other; keep one"),
    ("{vllm: {url: a, http: b}}", "plugins[0].parameters.vllm.http: is the older name of url; keep one"),
    ("{vllm: {url: a, fromPool: true}}", "plugins[0].parameters.vllm.fromPool: and url exclude each other; keep one"),
    ("{vllm: {uri: a}}", "plugins[0].parameters.vllm.uri: unknown field; did you mean url?"),
    ("{vllm: {messagesRenderMode: legacy}}",
     "plugins[0].parameters.vllm.messagesRenderMode: legacy is not done here; write native"),
    ("{vllm: {endpointDiscovery: {}}}", "plugins[0].parameters.vllm.endpointDiscovery: is not done here; write"),
    ("{vllm: {prefillOnly: true}}", "plugins[0].parameters.vllm.prefillOnly: is not done here; take it out"),
    ("{vllm: {timeout: 0s}}", "plugins[0].parameters.vllm: timeout is 0.0; it must be at least 0.001"),
    ("{local: {}}", "plugins[0].parameters.local.models: missing; write at least one path with a tokenizer.json"),
    ("{local: {models: [{path: a}, {path: b}]}}", "plugins[0].parameters.local.models: two are named ''"),
    ("{local: {models: [{path: a}], threads: 0}}", "plugins[0].parameters.local: threads is 0; it must be"),
    ("{local: {models: [{path: /nowhere}]}}", "plugins[0].parameters: /nowhere/tokenizer.json: no tokenizer of the"),
    ("{modelName: m, local: {models: [{path: a}]}}", "plugins[0].parameters.modelName: belongs to vllm; write local."),
    ("{vllm: {}, maxWaiting: 0}", "plugins[0].parameters: maxWaiting is 0; it must be at least 1"),
])  # fmt: skip
def test_what_cannot_be_had_is_an_error_with_its_key_path(parameters: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(parameters)
    assert str(caught.value).startswith(message)


def test_only_one_tokenizes() -> None:
    with pytest.raises(ConfigError, match=r"plugins\[1\]: plugins\[0\] tokenizes already; keep one"):
        plan("{vllm: {}}", more=", {type: token-producer, name: b, parameters: {vllm: {}}}")


def test_who_reads_tokens_is_told_when_nobody_makes_them() -> None:
    built = plan("{estimate: {}}", more=", {type: reads-tokens}")
    assert built.tokens is not None
    assert any("reads-tokens: nothing tokenizes, so it knows only" in warning for warning in built.warnings)
    assert UNREAD in plan("{vllm: {}}").warnings
    assert plan("{vllm: {}}", more=", {type: reads-tokens}").warnings == ()


def test_what_a_model_cannot_do_is_said_at_start(folder: Path, tmp_path: Path) -> None:
    built = plan(f"{{local: {{models: [{{path: {folder}}}]}}}}")
    assert (
        "tokens: token-producer has a tokenizer for every model; texts are cut at 3 tokens and between words"
        in built.lines
    )
    assert built.warnings == (UNREAD,)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "gpt_oss"}')
    (warning, _) = plan(f"{{local: {{models: [{{path: {tmp_path}, name: g}}]}}}}").warnings
    assert (
        warning
        == "plugins[0]: chats with g are not tokenized: vLLM writes conversations in a format of its own (gpt_oss)"
    )


def test_tokenizers_are_read_once_however_often_the_configuration_changes(folder: Path) -> None:
    first = plan(f"{{local: {{models: [{{path: {folder}}}]}}}}")
    again = plan(f"{{local: {{models: [{{path: {folder}}}]}}}}", more=", {type: queue-scorer}", before=first)
    assert again.tokens is first.tokens
    other = plan(f"{{local: {{models: [{{path: {folder}}}], threads: 1}}}}", before=first)
    assert other.tokens is not first.tokens


def asked(path: str = "/v1/completions", **body: Any) -> TokenRequest:
    return TokenRequest(path, msgspec.json.encode({"model": "m", **body}), "m", 1)


def test_a_picker_tokenizes_as_its_plan_says_now(folder: Path) -> None:
    local = plan(f"{{local: {{models: [{{path: {folder}}}]}}}}")

    async def scene() -> None:
        core = Core(local, Settings())
        opened = OpenedSource(core.tokens, core.pool.candidates)
        opened.use(local.tokens)
        before = opened.source
        assert before is not None
        assert isinstance(before.now(asked(prompt="x")), tuple)
        opened.use(local.tokens)
        assert opened.source is before
        elsewhere = plan("{vllm: {}}")
        core.use(elsewhere)
        opened.use(elsewhere.tokens)
        assert opened.source is not before
        assert core.director.tokens is core.tokens
        nobody = plan("{estimate: {}}")
        core.use(nobody)
        opened.use(nobody.tokens)
        assert (opened.source, core.director.tokens) == (None, None)
        await opened.close()

    asyncio.run(scene())


def test_models_are_told_apart_by_name(folder: Path) -> None:
    tokens = plan(f"{{local: {{models: [{{path: {folder}, name: a}}, {{path: {folder}, name: b}}]}}}}").tokens
    assert tokens is not None

    async def scene() -> None:
        source = open_source(tokens, tuple)
        assert source is not None
        assert source.now(asked(prompt="x")) is NoTokenIds.NO_MODEL
        await source.close()

    asyncio.run(scene())


def test_a_file_that_names_no_tokenizer_is_refused_before_it_serves(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"{HEADER}[{{type: token-producer, parameters: {{local: {{models: [{{path: {tmp_path}}}]}}}}}}]}}"
    )
    with pytest.raises(
        ConfigError, match=r"config\.yaml: plugins\[0\]\.parameters: .*tokenizer\.json: no tokenizer of"
    ):
        plan_from(config, None)
