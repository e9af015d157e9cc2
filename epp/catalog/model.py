"""A model's shape, and what follows from it: parameters, weight bytes, KV bytes per token."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Quantization(Enum):
    """How the weights of linear layers are stored if not in the model's own type."""

    FP8 = "fp8"
    INT8 = "int8"
    """Stored at 8 bits, computed at 16."""
    INT4 = "int4"
    MXFP4 = "mxfp4"
    """Applies to the experts only, as in gpt-oss."""

    @property
    def bits(self) -> float:
        """Bits per weight, including scales."""
        return {Quantization.INT4: 4.16, Quantization.MXFP4: 4.25}.get(self, 8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The shape of a decoder-only transformer, with the numbers of its ``config.json``.

    Invariant: every count is that of one model, over all ranks. All layers have full attention except ``window_layers``
    of them, which look back ``window_tokens``.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    """The width of the MLP in a layer without experts."""
    vocabulary: int
    max_model_len: int
    tied: bool = False
    """Whether input and output embeddings are one matrix."""
    attention_bias: bool = False
    """Whether the query, key and value projections have a bias."""
    full_bias: bool = False
    """Whether, in addition, the output projection, the router and the experts have a bias."""

    experts: int = 0
    experts_per_token: int = 0
    expert_inner: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    """In a model with experts: how many layers have none."""

    window_layers: int = 0
    window_tokens: int = 0
    latent_dim: int = 0
    """Latent attention (MLA): values kept per token and layer, the same on every rank. 0 for other attention."""
    latent_parameters: int = 0
    """Latent attention (MLA): weights of its projections, per layer."""

    dtype_bytes: int = 2
    """The size of unquantized weights, and of KV unless that is quantized."""
    quantization: Quantization | None = None
    stored_bytes: int | None = None
    """The size of the weights' files; None to compute it."""
    loaded_bytes: int | None = None
    """The size of the weights in GPU memory, for engines that were observed to use another amount than the files."""

    @property
    def full_layers(self) -> int:
        """How many layers look back to the beginning."""
        return self.layers - self.window_layers

    @property
    def parameters(self) -> int:
        """The number of all weights."""
        per_expert_layer = self.experts * self._expert + self._always_in_expert_layer
        return (
            self._embeddings
            + self.layers * self._attention
            + self._dense_layers * self._dense_mlp
            + self._expert_layers * per_expert_layer
        )

    @property
    def active_parameters(self) -> int:
        """The number of weights that a token is multiplied with.

        Experts that the token does not use and the input embedding are not included.
        """
        per_expert_layer = self.experts_per_token * self._expert + self._always_in_expert_layer
        return (
            self.vocabulary * self.hidden
            + self.layers * self._attention
            + self._dense_layers * self._dense_mlp
            + self._expert_layers * per_expert_layer
        )

    @property
    def weight_bytes(self) -> int:
        """The size of the weights in GPU memory, over all ranks."""
        return self.loaded_bytes or self.file_bytes

    @property
    def file_bytes(self) -> int:
        """The size of the weights in files."""
        if self.stored_bytes is not None:
            return self.stored_bytes
        if self.quantization is None:
            return self.parameters * self.dtype_bytes
        plain = self._embeddings
        if self.quantization is Quantization.MXFP4:
            plain = self.parameters - self._expert_layers * self.experts * self._expert
        return round(plain * self.dtype_bytes + (self.parameters - plain) * self.quantization.bits / 8)

    def kv_bytes_per_token_and_layer(self, dtype_bytes: int | None = None, ranks: int = 1) -> int:
        """Return the bytes of one token's keys and values in one layer, over all ``ranks``.

        A head that several ranks share is counted for each of them.
        """
        width = dtype_bytes or self.dtype_bytes
        if self.latent_dim:
            return self.latent_dim * width * ranks
        return 2 * max(self.kv_heads, ranks) * self.head_dim * width

    def kv_bytes_per_token(self, dtype_bytes: int | None = None, ranks: int = 1) -> int:
        """Return the KV bytes of one token in all layers, over all ``ranks``, while all layers keep it."""
        return self.layers * self.kv_bytes_per_token_and_layer(dtype_bytes, ranks)

    @property
    def _expert_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def _dense_layers(self) -> int:
        return self.layers - self._expert_layers

    @property
    def _embeddings(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def _attention(self) -> int:
        if self.latent_dim:
            return self.latent_parameters
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        weights = self.hidden * (queries + 2 * keys) + queries * self.hidden
        weights += queries + 2 * keys if self.attention_bias or self.full_bias else 0
        return weights + (self.hidden if self.full_bias else 0)

    @property
    def _dense_mlp(self) -> int:
        return 3 * self.hidden * self.inner

    @property
    def _expert(self) -> int:
        weights = 3 * self.hidden * self.expert_inner
        return weights + (2 * self.expert_inner + self.hidden if self.full_bias else 0)

    @property
    def _always_in_expert_layer(self) -> int:
        router = self.hidden * self.experts + (self.experts if self.full_bias else 0)
        return router + self.shared_experts * 3 * self.hidden * self.expert_inner
