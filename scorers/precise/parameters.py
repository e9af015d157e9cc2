"""The parameters of the precise producer.

Source: names and defaults of the Go picker's plugin of the same type; fields marked "Ours" are not in it.
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


class CamelStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The base of the structs below: frozen, in camel case, and without unknown keys."""


class TokenProcessorConfig(CamelStruct, frozen=True):
    """The block size assumed until an engine reports one; the index takes each block as its engine announces it."""

    block_size_tokens: int | None = None
    block_size: int | None = None
    """Deprecated name of ``block_size_tokens``, which takes precedence."""
    hash_seed: str = ""
    """No effect: blocks are named with a secret of this process alone."""
    hash_algorithm: Literal["", "cbor-fnv", "xxh64"] = ""
    """No effect."""

    def __post_init__(self) -> None:
        check_range("blockSizeTokens", self.block_size_tokens, 1, 2**16)
        check_range("blockSize", self.block_size, 1, 2**16)

    @property
    def block_tokens(self) -> int:
        """The assumed block size, 16 unless configured. Units: tokens."""
        return self.block_size_tokens or self.block_size or 16


class KvCacheBackendConfig(CamelStruct, frozen=True):
    """The value of a token in one tier, relative to one that need not be moved."""

    name: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_range("weight", self.weight, 0, 1)


class IndexerConfig(CamelStruct, frozen=True):
    """The index, which is in this process's memory and as large as what the engines hold."""

    kv_block_index_config: dict[str, Any] | None = None
    """The configuration of the Go picker's index, not used here; an index outside this process is refused."""
    kv_cache_backend_configs: tuple[KvCacheBackendConfig, ...] | None = None
    tokenizers_pool_config: Any = None
    """Deprecated and not used: token ids come from a token-producer."""

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
        """Weights by tier; an absent tier has weight 0."""
        written = self.kv_cache_backend_configs
        if written is None:
            return {Tier.GPU: 1.0, Tier.CPU: 0.8}
        return {Tier(backend.name.lower()): backend.weight for backend in written}


class PodDiscoveryConfig(CamelStruct, frozen=True):
    """Where each endpoint publishes its events."""

    pod_label_selector: str = ""
    """No effect: every endpoint of the pool is followed."""
    pod_namespace: str = ""
    """No effect."""
    socket_port: PORT | None = None
    """The port where batches are published, plus N for an endpoint whose name ends in ``-rank-N``. 5557, unless
    ``socket_port_offset`` is configured."""
    replay_socket_port: PORT = 0
    """The port where batches are sent again, plus the rank; 0 for none."""
    data_parallel_size: Annotated[int, msgspec.Meta(ge=0, le=256)] = 0
    """Number of publishers per endpoint, on consecutive ports; 0 is one. (The Go picker ignores it.)"""
    socket_port_offset: int | None = None
    """Ours: the port is the serving port plus this, instead of ``socket_port``."""
    replay_socket_port_offset: int | None = None
    """Ours: the same for ``replay_socket_port``."""
    socket_port_label: str = "tierwise/kv-events-port"
    """Ours: the endpoint label that has the port; takes precedence over everything else."""
    replay_socket_port_label: str = "tierwise/kv-replay-port"
    """Ours: the same for the replay port."""

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


class KvEventsConfig(CamelStruct, frozen=True):
    """How the engines' events are followed."""

    topic_filter: str | None = None
    """The prefix of the topics. None is ``kv@`` where publishers connect to us, else any topic, since the socket then
    identifies the publisher. (The Go picker always expects ``kv@``.)"""
    concurrency: Annotated[int, msgspec.Meta(ge=1)] = 4
    """No effect: one process follows all engines."""
    engine_type: Literal["", "vllm", "sglang"] = "vllm"
    """No effect: both are understood."""
    discover_pods: bool = True
    pod_discovery_config: PodDiscoveryConfig = PodDiscoveryConfig()
    zmq_endpoint: str = ""
    """The address where publishers connect to us, ``tcp://*:5557``; their topics must be ``kv@HOST:PORT@MODEL``. Empty
    if we connect to them."""
    tracing: bool = False
    """No effect."""

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
        """The prefix of the topics to subscribe to."""
        if self.topic_filter is not None:
            return self.topic_filter
        return "kv@" if self.zmq_endpoint else ""


class PreciseParameters(CamelStruct, frozen=True):
    """All parameters of the precise producer."""

    token_processor_config: TokenProcessorConfig = TokenProcessorConfig()
    indexer_config: IndexerConfig = IndexerConfig()
    kv_events_config: KvEventsConfig = KvEventsConfig()
    speculative_indexing: bool = False
    """Whether a pick counts at once, before the engine's events confirm it."""
    speculative_ttl: str = msgspec.field(default="2s", name="speculativeTTL")
    """How long such a pick counts."""

    def __post_init__(self) -> None:
        self.lifetime_s()

    def lifetime_s(self) -> float:
        """Return ``speculative_ttl`` in seconds.

        Raises: ValueError if it is not a duration.
        """
        parts = _DURATION.findall(self.speculative_ttl)
        if not parts or "".join(number + unit for number, unit in parts) != self.speculative_ttl:
            raise ValueError(f"speculativeTTL: {self.speculative_ttl!r} is no duration; write 2s")
        return sum([float(number) * _SECONDS[unit] for number, unit in parts])
