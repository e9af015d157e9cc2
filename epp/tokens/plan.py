"""The configured tokenizing. Libraries are imported only when a plan needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epp.errors import ConfigError
from epp.tokens.step import TokenLimits
from scorers.base import Candidate

if TYPE_CHECKING:
    from epp.tokens.model.model import ModelTokenizer

Candidates = Callable[[], Sequence[Candidate]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """Where one model's tokenizer is, and the command-line settings of its engines."""

    folder: Path
    template: Path | None = None
    in_parts: bool | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlan:
    """The plan for tokenizers in this process."""

    models: Mapping[str, LocalModel]
    threads: int
    cache_bytes: int
    """The size of the caches of all models together."""
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePlan:
    """The plan for a vLLM server that tokenizes."""

    url: str
    """The server's URL; empty to use the pool's endpoints in turn."""
    scheme: str = "http"
    """The URL scheme of the pool's endpoints."""
    renders: bool = True
    """Whether the server has the ``/render`` paths; if not, ``/tokenize`` is used."""
    model_name: str = ""
    """The model to name instead of the request's; empty to keep the request's own."""
    timeout_s: float = 5.0
    max_bytes: int = 16 << 20
    ca_cert_path: str = ""
    client_cert_path: str = ""
    client_key_path: str = ""
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPlan:
    """All settings of the tokenizing step."""

    backend: LocalPlan | RemotePlan | None = None
    """None: only prompts that clients send as token ids are known."""
    limits: TokenLimits = field(default_factory=TokenLimits)
    loaded: Mapping[str, ModelTokenizer] = field(default_factory=dict, compare=False)
    """The tokenizers of a ``LocalPlan``, by model."""


def load(plan: LocalPlan) -> dict[str, ModelTokenizer]:
    """Load the tokenizers that ``plan`` names, and return them by model. Raises: ConfigError."""
    try:
        from epp.tokens.model.model import ModelTokenizer
    except ImportError as error:
        raise ConfigError(
            "tokenizers in this process need libraries: pip install '.[precise]' in a clone of Tierwise"
        ) from error
    share = plan.cache_bytes // len(plan.models)
    return {
        name: ModelTokenizer(
            model.folder, share, template=model.template, in_parts=model.in_parts, arguments=model.arguments
        )
        for name, model in plan.models.items()
    }
