"""The flags of ``tierwise serve`` that concern Kubernetes, and the function that makes typed options of them.

A flag that sets one option of ``ClusterOptions`` by itself is one row with the option's path; the others are read in
``with_cluster``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from epp.discovery.options import namespace_of, pod_options, pool_of
from epp.flags import values
from epp.flags.arguments import Given
from epp.flags.flag import Flag, grouped, refused
from epp.server import shared_flags as shared
from epp.server.settings import Settings

POOL = grouped(
    "The pool",
    Flag("endpoint-selector", values.text, "",
         "endpoints are the ready pods with these labels: app=vllm,tier in (a,b); needs a pod's credentials",
         "LABELS"),
    Flag("endpoint-target-ports", values.unless_empty(values.integers(1, 65535)), "",
         "the ports of each such pod, at most eight", "LIST"),
    shared.POOL_NAME,
    Flag("pool-namespace", values.text, "",
         "its namespace, and that of the selected pods (default: $NAMESPACE, or else the picker's own)", "NAME"),
    Flag("pool-group", values.text, "", "its API group", "GROUP"),
    Flag("kubeconfig", values.path, "picker.cluster.kubeconfig",
         "the file that names the API server (default: $KUBECONFIG, in a pod its own credentials, ~/.kube/config)",
         "FILE"),
)  # fmt: skip
"""Where the endpoints come from."""

KUBE = (
    *POOL,
    refused("ha-enable-leader-election", values.boolean, "leader election needs Kubernetes; run one replica", False),
    *grouped(
        "Metrics and traces",
        Flag("metrics-endpoint-auth", values.boolean, "picker.cluster.metrics_auth",
             "ask the API server who may read /metrics (default: in a pod that takes its endpoints from the cluster)"),
    ),
)  # fmt: skip
"""Source: the Go picker's ``pkg/epp/server/options.go``, v0.9.0 and later."""


def with_cluster(picker: Settings, given: Given, environment: Mapping[str, str]) -> Settings:
    """Return ``picker``, which has the rows' values, with those that follow from several flags or the environment.

    Raises: ConfigError naming the flag.
    """
    pods = pod_options(given)
    if pods is not None:
        picker = replace(picker, pool_name=pool_of(environment) or Settings().pool_name)
    return replace(picker, cluster=replace(picker.cluster, namespace=namespace_of(given, environment), pods=pods))
