"""Reads ``tokenizer_config.json`` and the files beside it: special tokens, and the chat template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from epp.errors import ConfigError
from epp.tokens.model.cuts import AddedToken

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
TEMPLATE_FILE = "chat_template.jinja"
DEFAULT, WITH_TOOLS = "default", "tool_use"
ELSEWHERE = {
    "gpt_oss": "writes conversations in a format of its own",
    "deepseek_v32": "is given conversations by code, not by a template",
    "deepseek_v4": "is given conversations by code, not by a template",
    "kimi_k3": "is given conversations by code, not by a template",
    "inkling": "is given conversations by code, not by a template",
}
"""Kinds of models (``model_type``) for which vLLM 0.32 uses no chat template."""


class NamedTemplate(msgspec.Struct, frozen=True):
    """One of several chat templates of a model."""

    name: str
    template: str


class TokenizerConfig(msgspec.Struct, frozen=True):
    """The fields of the file that are used here; all others are ignored."""

    chat_template: str | tuple[NamedTemplate, ...] | None = None
    bos_token: str | AddedToken | None = None
    eos_token: str | AddedToken | None = None
    unk_token: str | AddedToken | None = None
    sep_token: str | AddedToken | None = None
    pad_token: str | AddedToken | None = None
    cls_token: str | AddedToken | None = None
    mask_token: str | AddedToken | None = None
    added_tokens_decoder: dict[str, AddedToken] = {}
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The text of each named special token, as a template sees it."""
        found = {}
        for name in NAMED:
            token: str | AddedToken | None = getattr(self, name)
            if token is not None:
                found[name] = token if isinstance(token, str) else token.content
        return found

    @property
    def templates(self) -> Mapping[str, str]:
        """The chat templates by name. A single template has the default name."""
        if isinstance(self.chat_template, str):
            return {DEFAULT: self.chat_template}
        return {one.name: one.template for one in self.chat_template or ()}

    @property
    def says_what_is_around(self) -> bool:
        """Whether this file, and not the tokenizer's, determines the tokens put around a text."""
        return self.add_bos_token is not None or self.add_eos_token is not None

    @property
    def around(self) -> tuple[str | None, str | None]:
        """The tokens put before and after a text according to this file."""
        names = self.special_tokens
        before = names.get("bos_token") if self.add_bos_token else None
        return before, names.get("eos_token") if self.add_eos_token else None

    def missing_from(self, known: Iterable[str]) -> list[AddedToken]:
        """Return the tokens to add to a tokenizer that has the ``known`` ones."""
        numbered = sorted(self.added_tokens_decoder.items(), key=lambda item: int(item[0]))
        tokens = [token for _, token in numbered]
        for name in NAMED:
            token: str | AddedToken | None = getattr(self, name)
            if token is not None:
                tokens.append(AddedToken(token, special=True) if isinstance(token, str) else token)
        missing: dict[str, AddedToken] = {}
        known = set(known)
        for one in tokens:
            if one.content not in known:
                missing.setdefault(one.content, one)
        return list(missing.values())


class ModelConfig(msgspec.Struct, frozen=True):
    """The kind of model, from ``config.json``."""

    model_type: str = ""


def read_config(folder: Path, template: Path | None = None) -> TokenizerConfig:
    """Read the configuration in ``folder``.

    Its chat template is the one in the file ``template`` if given, else the one that vLLM would use. Raises:
    ConfigError naming the file.
    """
    config = _read(folder / "tokenizer_config.json", TokenizerConfig) or TokenizerConfig()
    named = folder / "special_tokens_map.json"
    older = _read(named, TokenizerConfig)
    if older is not None:
        given = {name: getattr(older, name) for name in NAMED if getattr(config, name) is None}
        config = msgspec.structs.replace(config, **given)
    file = template or folder / TEMPLATE_FILE
    if template is not None or file.is_file():
        config = msgspec.structs.replace(config, chat_template=_text(file))
    return config


def no_template_for(folder: Path) -> str | None:
    """Return why vLLM renders the model in ``folder`` without a chat template; None if it uses one."""
    model = _read(folder / "config.json", ModelConfig)
    kind = model.model_type if model is not None else ""
    return f"vLLM {ELSEWHERE[kind]} ({kind})" if kind in ELSEWHERE else None


def _read(file: Path, kind: type[Any]) -> Any:
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(_text(file).encode(), type=kind)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file}: {error}") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
