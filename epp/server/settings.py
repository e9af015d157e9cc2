"""The settings of a picker beside its plan: values that the flags of a command set, and nothing that is open."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from epp.discovery.options import KEEP_S, PodOptions, PoolOptions
from epp.explain.options import DebugOptions
from epp.extproc.options import ExchangeSettings
from epp.kube.election.term import Term
from epp.ports.options import MetricsTlsOptions, TlsOptions
from epp.scrape.pace import Pace
from epp.tracing.settings import TraceSettings


class Transport(Enum):
    """The implementation of HTTP/2 and gRPC that serves the proxy."""

    WIRE = "wire"
    """``epp.wire.server``, our own."""
    GRPCIO = "grpcio"
    """``epp.wire.aio``, grpcio's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """The file that keeps the prefix index from one run to the next."""

    file: Path | None = None
    """None keeps the index nowhere."""
    interval_s: float = 60.0
    """How often the file is written while requests are served; 0 writes it only at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What the picker does with the API server of a Kubernetes cluster; nothing, unless something is asked for."""

    namespace: str | None = None
    """Of the pool and its pods; None for that of the picker's identity, or else ``default``."""
    kubeconfig: Path | None = None
    """The file that names the API server; None for ``KUBECONFIG``, the pod's own credentials, or ``~/.kube/config``."""
    metrics_auth: bool | None = None
    """Whether the API server decides who may read /metrics; None if it lists the endpoints and the picker is a pod."""
    pods: PodOptions | None = None
    """The pods that are endpoints, unless another source lists the endpoints."""
    pool: PoolOptions | None = None
    """The InferencePool whose pods are endpoints, unless another source lists them."""
    keep_unready_s: float = KEEP_S
    """How long what is known of an endpoint is kept while its pod is not ready; 0 drops it at once."""
    election: Term | None = None
    """How long a leader's Lease counts; None without an election."""
    own_pod: str = ""
    """The name of the pod that the picker runs in; empty if it is not known."""

    @property
    def has_endpoints(self) -> bool:
        """Whether the cluster lists the endpoints, unless another source does."""
        return self.pods is not None or self.pool is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one picker. Ports: 0 takes a free one, None opens none."""

    pool_name: str = "epp"
    endpoints: tuple[str, ...] = ()
    """``host:port``; if empty, ``endpoints_file``, the plan's discovery or ``cluster`` lists the endpoints."""
    endpoints_file: Path | None = None
    """In the format of ``file-discovery``, watched."""
    cluster: ClusterOptions = ClusterOptions()

    host: str = "127.0.0.1"
    grpc_port: int = 0
    health_port: int | None = None
    metrics_host: str | None = None
    """None for ``host``."""
    metrics_port: int = 0
    debug: DebugOptions | None = None
    transport: Transport = Transport.WIRE
    tls: TlsOptions | None = None
    """None serves ext-proc in plaintext."""
    metrics_tls: MetricsTlsOptions | None = None
    """None serves /metrics in plaintext."""

    exchange: ExchangeSettings = ExchangeSettings()  # frozen, as are the defaults below, so one value may be shared
    max_message_bytes: int = 4 << 20
    """Of one gRPC message."""
    max_held_bytes: int = 1 << 30
    """Of all request bodies that are incomplete or wait; above it, requests are answered with 503."""
    snapshot: SnapshotOptions = SnapshotOptions()

    pace: Pace = Pace()
    """How often the endpoints' metrics are read."""
    sample_ratio: float = 1.0
    """The share of responses that the picker sees in full."""
    deprecated_metrics: bool = False
    """Whether the older names of metrics are exposed, too."""
    stream_metrics: bool = False
    """Whether ext-proc streams, their ends and their durations are counted."""
    tracing: TraceSettings | None = None
    """None writes no traces."""
