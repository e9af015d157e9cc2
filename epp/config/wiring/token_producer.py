"""``token-producer``: its parameters, the Go picker's and ours, and the plan that follows from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from epp.tokens.plan import LocalModel, LocalPlan, RemotePlan, TokenPlan, load
from epp.tokens.step import TokenLimits
from epp.units import Duration, Quantity
from scorers.base import Plugin
from scorers.parameters import check_range

DEFAULT_URL = "http://localhost:8000"
TIMEOUT_S = 5.0
MAX_WAITING = 1000
"""Guess: more requests than that are waiting for a server that is down."""
CACHE_BYTES = 256 << 20
"""About 35 million tokens with their texts. Guess: the conversations of an hour."""
MAX_BYTES = 16 << 20
FORMATS = {"auto": None, "openai": True, "string": False}


class Estimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of tokens of media, which cannot be changed here."""

    image: Any = None
    video: Any = None
    audio: Any = None

    def __post_init__(self) -> None:
        for key, value in (("image", self.image), ("video", self.video), ("audio", self.audio)):
            if value is not None:
                raise ValueError(f"{key}: how many tokens media count cannot be set here; take it out")


class Vllm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A vLLM server, with a model or without one (``vllm launch render``)."""

    url: str | None = None
    http: str | None = None
    """An older name of ``url``."""
    timeout: Duration | None = None
    mm_timeout: Duration | None = None
    """Has no effect, since requests with media are not rendered here."""
    ca_cert_path: str = ""
    client_cert_path: str = ""
    client_key_path: str = ""
    insecure_skip_verify: bool = False
    messages_render_mode: Literal["auto", "native", "legacy"] = "auto"
    endpoint_discovery: Any = None
    prefill_only: bool = False
    api: Literal["render", "tokenize"] = "render"
    """Ours: ``tokenize`` for servers without the ``/render`` paths."""
    from_pool: bool = False
    """Ours: ask the pool's endpoints, in turn, instead of a URL."""
    scheme: Literal["http", "https"] = "http"
    """Ours: the scheme of the pool's endpoints."""

    def __post_init__(self) -> None:
        if self.url is not None and self.http is not None:
            raise ValueError("http: is the older name of url; keep one")
        if self.from_pool and (self.url or self.http):
            raise ValueError("fromPool: and url exclude each other; keep one")
        if self.messages_render_mode == "legacy":
            raise ValueError("messagesRenderMode: legacy is not done here; write native")
        if self.endpoint_discovery is not None:
            raise ValueError("endpointDiscovery: is not done here; write url, or fromPool")
        if self.prefill_only:
            raise ValueError("prefillOnly: is not done here; take it out")
        check_range("timeout", self.timeout, 0.001)


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The tokenizer of a model."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    """The folder with ``tokenizer.json``."""
    name: str = ""
    """The model's name in requests. It may be left out for a single model, which then serves all names."""
    chat_template: str = ""
    """A file, as in the engines' ``--chat-template``."""
    chat_template_kwargs: dict[str, Any] = {}
    """As in the engines' ``--default-chat-template-kwargs``."""
    content_format: Literal["auto", "openai", "string"] = "auto"
    """As in the engines' ``--chat-template-content-format``."""


class Local(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Tokenizers that run in this process."""

    models: tuple[Model, ...] = ()
    threads: int = 2
    cache_bytes: Quantity | None = None
    max_request_bytes: Quantity | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("models: missing; write at least one path with a tokenizer.json")
        check_range("threads", self.threads, 1, 64)
        names = [model.name for model in self.models]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"models: two are named {name!r}; give each the name that requests use")


class TokenParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which backend tokenizes: ``estimate``, ``vllm`` or ``local``. ``modelName`` alone means ``vllm``."""

    estimate: Estimate | None = None
    model_name: str | None = None
    vllm: Vllm | None = None
    uds_tokenizer_config: Any = None
    local: Local | None = None
    """Ours: not in the Go picker."""
    timeout: Duration | None = None
    """Ours: the longest that a request waits for its tokens."""
    max_waiting: int = MAX_WAITING
    """Ours: the most requests that wait; any further ones continue without tokens."""

    def __post_init__(self) -> None:
        if self.uds_tokenizer_config is not None:
            raise ValueError(
                "udsTokenizerConfig: is deprecated and not done here; write vllm, or local with a tokenizer's path"
            )
        named = [key for key in ("estimate", "vllm", "local") if getattr(self, key) is not None]
        if len(named) > 1:
            raise ValueError(f"{named[1]}: and {named[0]} exclude each other; keep one")
        if self.model_name and self.local is not None:
            raise ValueError("modelName: belongs to vllm; write local.models[].name")
        check_range("timeout", self.timeout, 0.001)
        check_range("maxWaiting", self.max_waiting, 1)

    @property
    def tokenizes(self) -> bool:
        """Whether it does more than estimate."""
        return self.local is not None or self.vllm is not None or bool(self.model_name)


class TokenProducer(Plugin[TokenParameters]):
    """The number of prompt tokens, estimated (4 bytes each) or the engine's own."""

    type_name = "token-producer"
    Parameters = TokenParameters

    def __init__(self, parameters: TokenParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._plan: TokenPlan | None = None

    def plan(self) -> TokenPlan | None:
        """Return the plan; the first call reads the tokenizers. Raises: ConfigError if that fails."""
        if self._plan is None and self.parameters.tokenizes:
            self._plan = _plan(self.parameters)
        return self._plan


def _plan(written: TokenParameters) -> TokenPlan:
    limits = TokenLimits(written.timeout or TIMEOUT_S, written.max_waiting)
    if written.local is not None:
        local = LocalPlan(
            models={
                (model.name if len(written.local.models) > 1 else model.name or ""): LocalModel(
                    folder=Path(model.path),
                    template=Path(model.chat_template) if model.chat_template else None,
                    in_parts=FORMATS[model.content_format],
                    arguments=model.chat_template_kwargs,
                )
                for model in written.local.models
            },
            threads=written.local.threads,
            cache_bytes=written.local.cache_bytes or CACHE_BYTES,
            max_bytes=written.local.max_request_bytes or MAX_BYTES,
        )
        return TokenPlan(backend=local, limits=limits, loaded=load(local))
    vllm = written.vllm or Vllm()
    timeout_s = vllm.timeout or TIMEOUT_S
    remote = RemotePlan(
        url="" if vllm.from_pool else (vllm.url or vllm.http or DEFAULT_URL).rstrip("/"),
        scheme=vllm.scheme,
        renders=vllm.api == "render",
        model_name=written.model_name or "",
        timeout_s=timeout_s,
        ca_cert_path=vllm.ca_cert_path,
        client_cert_path=vllm.client_cert_path,
        client_key_path=vllm.client_key_path,
        insecure_skip_verify=vllm.insecure_skip_verify,
    )
    return TokenPlan(backend=remote, limits=msgspec.structs.replace(limits, timeout_s=written.timeout or timeout_s))
