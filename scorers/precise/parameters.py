"""How the precise producer is configured.

Source: names and defaults of the Go picker's plugin of the same type; what is marked so is ours.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from scorers.base import Tier
from scorers.parameters import check_range

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SOCKET_PORT = 5557
PORT = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The base of those below."""


class TokenProcessorConfig(Settings, frozen=True):
    """What blocks are taken for until an engine says; the index takes each as its engine announces it."""

    block_size_tokens: int | None = None
    block_size: int | None = None
    """Deprecated name of ``block_size_tokens``, which wins."""
    hash_seed: str = ""
    """Changes nothing: what blocks are named by is secret and of this process alone."""
    hash_algorithm: Literal["", "cbor-fnv", "xxh64"] = ""
    """Changes nothing."""

    def __post_init__(self) -> None:
        check_range("blockSizeTokens", self.block_size_tokens, 1, 2**16)
        check_range("blockSize", self.block_size, 1, 2**16)

    @property
    def block_tokens(self) -> int:
        """16 unless written."""
        return self.block_size_tokens or self.block_size or 16


class KvCacheBackendConfig(Settings, frozen=True):
    """What a token in one tier is worth, beside one that need not be moved."""

    name: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_range("weight", self.weight, 0, 1)


class IndexerConfig(Settings, frozen=True):
    """The index, which lies in this process's memory and is as large as what the engines hold."""

    kv_block_index_config: dict[str, Any] | None = None
    """Of the Go picker's index: of no use here; one that would lie elsewhere is refused."""
    kv_cache_backend_configs: tuple[KvCacheBackendConfig, ...] | None = None
    tokenizers_pool_config: Any = None
    """Deprecated, and of no use: token ids come from a token-producer."""

    def __post_init__(self) -> None:
        for key in ("redisConfig", "valkeyConfig"):
            if (self.kv_block_index_config or {}).get(key) is not None:
                raise ValueError(f"kvBlockIndexConfig.{key}: the index lies in the picker's memory here; take it out")
        known = {tier.value for tier in Tier}
        for backend in self.kv_cache_backend_configs or ():
            if backend.name.lower() not in known:
                raise ValueError(
                    f"kvCacheBackendConfigs: {backend.name!r} is no tier; there are {', '.join(sorted(known))}"
                )

    @property
    def weights(self) -> dict[Tier, float]:
        """By tier; what is not there is worth nothing."""
        written = self.kv_cache_backend_configs
        if written is None:
            return {Tier.GPU: 1.0, Tier.CPU: 0.8}
        return {Tier(backend.name.lower()): backend.weight for backend in written}


class PodDiscoveryConfig(Settings, frozen=True):
    """Where each endpoint publishes its events."""

    pod_label_selector: str = ""
    """Changes nothing: every endpoint of the pool is followed."""
    pod_namespace: str = ""
    """Changes nothing."""
    socket_port: PORT | None = None
    """Where batches are published; the rank of an endpoint whose name ends in ``-rank-N`` is added. 5557, unless
    ``socket_port_offset`` says it."""
    replay_socket_port: PORT = 0
    """Where they are sent again; 0: nowhere. The rank is added."""
    data_parallel_size: Annotated[int, msgspec.Meta(ge=0, le=256)] = 0
    """Publishers of an endpoint, on consecutive ports; 0 is one. (The Go picker ignores it.)"""
    socket_port_offset: int | None = None
    """Ours: the port is the serving port plus this, in the place of ``socket_port``."""
    replay_socket_port_offset: int | None = None
    """Ours."""
    socket_port_label: str = "tierwise/kv-events-port"
    """Ours: an endpoint's label that names the port; wins over everything."""
    replay_socket_port_label: str = "tierwise/kv-replay-port"
    """Ours."""

    def __post_init__(self) -> None:
        check_range("socketPortOffset", self.socket_port_offset, -65535, 65535)
        check_range("replaySocketPortOffset", self.replay_socket_port_offset, -65535, 65535)
        for key, port, offset in (
            ("socketPort", self.socket_port, self.socket_port_offset),
            ("replaySocketPort", self.replay_socket_port, self.replay_socket_port_offset),
        ):
            if port and offset is not None:
                raise ValueError(f"{key}: {port}, and {key}Offset: {offset} says another port; write one of them")
        if self.socket_port is None and self.socket_port_offset is None:
            msgspec.structs.force_setattr(self, "socket_port", SOCKET_PORT)


class KvEventsConfig(Settings, frozen=True):
    """How the engines' events are followed."""

    topic_filter: str | None = None
    """What topics begin with. None: ``kv@`` where publishers connect to us, else anything, since the socket says whose
    they are. (The Go picker wants ``kv@`` of all.)"""
    concurrency: Annotated[int, msgspec.Meta(ge=1)] = 4
    """Changes nothing: one process follows all."""
    engine_type: Literal["", "vllm", "sglang"] = "vllm"
    """Changes nothing: both are understood."""
    discover_pods: bool = True
    pod_discovery_config: PodDiscoveryConfig = PodDiscoveryConfig()
    zmq_endpoint: str = ""
    """Where publishers connect to us, ``tcp://*:5557``; their topics must be ``kv@HOST:PORT@MODEL``. Empty: we connect
    to them."""
    tracing: bool = False
    """Changes nothing."""

    def __post_init__(self) -> None:
        if self.zmq_endpoint and not re.fullmatch(r"tcp://\S+:\d+|ipc://\S+", self.zmq_endpoint):
            raise ValueError(f"zmqEndpoint: {self.zmq_endpoint!r} is not tcp://HOST:PORT; for instance tcp://*:5557")
        if not self.zmq_endpoint and not self.discover_pods:
            raise ValueError("discoverPods: with false and no zmqEndpoint nobody would be followed; write one of them")
        if not self.zmq_endpoint and not (
            self.pod_discovery_config.socket_port or self.pod_discovery_config.socket_port_offset is not None
        ):
            raise ValueError("podDiscoveryConfig.socketPort: must be 1 to 65535")

    @property
    def topic(self) -> str:
        """What topics begin with."""
        if self.topic_filter is not None:
            return self.topic_filter
        return "kv@" if self.zmq_endpoint else ""


class PreciseParameters(Settings, frozen=True):
    """Everything."""

    token_processor_config: TokenProcessorConfig = TokenProcessorConfig()
    indexer_config: IndexerConfig = IndexerConfig()
    kv_events_config: KvEventsConfig = KvEventsConfig()
    speculative_indexing: bool = False
    """Whether a pick counts at once, until the engine's events say so."""
    speculative_ttl: str = msgspec.field(default="2s", name="speculativeTTL")
    """For how long."""

    def __post_init__(self) -> None:
        self.lifetime_s()

    def lifetime_s(self) -> float:
        """``speculative_ttl``. Raises: ValueError."""
        parts = _DURATION.findall(self.speculative_ttl)
        if not parts or "".join(number + unit for number, unit in parts) != self.speculative_ttl:
            raise ValueError(f"speculativeTTL: {self.speculative_ttl!r} is no duration; write 2s")
        return sum([float(number) * _SECONDS[unit] for number, unit in parts])
