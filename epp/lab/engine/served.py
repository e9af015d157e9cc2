"""What a simulated endpoint serves: one model under one or several names, and LoRA adapters on it.

Source: vLLM's ``--served-model-name`` and ``--lora-modules``: the first name is the one in answers and metrics,
requests may use any of them, and an adapter is a model whose parent is the first name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from epp.lab.engine.errors import ApiError

OWNER = "tierwise-sim"


class Adapter(NamedTuple):
    """A LoRA adapter: the name that requests ask for, and where its weights would be."""

    name: str
    path: str


class Model(NamedTuple):
    """The model of one request: its name in the response, and the adapter, empty for none."""

    name: str
    adapter: str


class ModelCard(msgspec.Struct):
    """A model as ``/v1/models`` lists it."""

    id: str
    created: int
    root: str
    parent: str | None
    max_model_len: int | None
    object: str = "model"
    owned_by: str = OWNER


class ModelList(msgspec.Struct):
    """The answer of ``/v1/models``."""

    data: list[ModelCard]
    object: str = "list"


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The names that requests may use. Invariant: ``names`` is not empty, and no name occurs twice in the fields."""

    root: str
    """The model that the names stand for."""
    names: Sequence[str]
    adapters: Sequence[Adapter] = ()

    def __post_init__(self) -> None:
        known = [*self.names, *(adapter.name for adapter in self.adapters)]
        if twice := sorted({name for name in known if known.count(name) > 1}):
            raise ValueError(f"the name {twice[0]!r} is given to two models; give each a name of its own")

    def find(self, name: str) -> Model:
        """Return the model called ``name``. Raises: ApiError 404 that lists the existing ones."""
        if name in self.names:
            return Model(self.names[0], "")
        known = [adapter.name for adapter in self.adapters]
        if name in known:
            return Model(name, name)
        raise ApiError(
            404, "NotFoundError",
            f"The model `{name}` does not exist; there are {', '.join(f'`{each}`' for each in [*self.names, *known])}.",
            "model",
        )  # fmt: skip

    def cards(self, created: int, max_model_len: int) -> list[ModelCard]:
        """Return one card for each name and one for each adapter."""
        names = [ModelCard(name, created, self.root, None, max_model_len) for name in self.names]
        parent = self.names[0]
        return names + [ModelCard(name, created, path, parent, None) for name, path in self.adapters]
