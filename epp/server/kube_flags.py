"""The flags of ``tierwise serve`` that concern Kubernetes, and the function that makes typed options of them.

A flag that sets one option of ``ClusterOptions`` by itself is one row with the option's path; the others are read in
``with_cluster``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from epp.discovery.options import POD_NAME, namespace_of, owner_of, pod_options, pool_options
from epp.errors import ConfigError
from epp.flags import values
from epp.flags.arguments import Given
from epp.flags.flag import Flag, grouped
from epp.kube.election.term import Term
from epp.server.settings import Settings
from epp.server.shared_flags import DAY_S

POOL = grouped(
    "The pool",
    Flag("endpoint-selector", values.text, "",
         "endpoints are the ready pods with these labels: app=vllm,tier in (a,b)",
         "LABELS"),
    Flag("endpoint-target-ports", values.unless_empty(values.integers(1, 65535)), "",
         "the ports of each such pod, at most eight", "LIST"),
    Flag("pool-name", values.text, "picker.pool_name",
         "endpoints are the pods of this InferencePool; beside another source of endpoints only a name in metrics",
         "NAME"),
    Flag("pool-namespace", values.text, "",
         "its namespace, and that of the selected pods (default: $NAMESPACE, or else the picker's own)", "NAME"),
    Flag("pool-group", values.text, "",
         "the InferencePool's API group (default: the one that has it, inference.networking.k8s.io first)", "GROUP"),
    Flag("keep-unready", values.duration(0, DAY_S), "picker.cluster.keep_unready_s",
         "how long the index of an endpoint is kept while its pod is not ready, or its pool is gone (default 120s)",
         "DURATION"),
    Flag("kubeconfig", values.path, "picker.cluster.kubeconfig",
         "the file that names the API server (default: $KUBECONFIG, in a pod its own credentials, ~/.kube/config)",
         "FILE"),
)  # fmt: skip
"""Where the endpoints come from."""

ELECTION = grouped(
    "Several pickers of one pool",
    Flag("ha-enable-leader-election", values.boolean, "",
         "of several pickers let one be ready, by a Lease in the pool's namespace (default false)"),
    Flag("leader-elect-lease-duration", values.duration(1, DAY_S), "",
         "how long standbys wait after the leader's last renewal (default 15s)", "DURATION"),
    Flag("leader-elect-renew-deadline", values.duration(0.5, DAY_S), "",
         "how long a renewal may take until the leader reports it; it goes on (default 10s)", "DURATION"),
    Flag("leader-elect-retry-period", values.duration(0.1, DAY_S), "",
         "how often the leader renews (default 2s)", "DURATION"),
)  # fmt: skip
"""The last three have the names and the defaults of Kubernetes' own components; the Go picker has only the first."""

KUBE = (
    *POOL,
    *ELECTION,
    *grouped(
        "Metrics and traces",
        Flag("metrics-endpoint-auth", values.boolean, "picker.cluster.metrics_auth",
             "ask the API server who may read /metrics (default: in a pod that takes its endpoints from the cluster)"),
    ),
)  # fmt: skip
"""Source: the Go picker's ``pkg/epp/server/options.go``, v0.9.0 and later."""


def with_cluster(picker: Settings, given: Given, environment: Mapping[str, str], notices: list[str]) -> Settings:
    """Return ``picker``, which has the rows' values, with those that follow from several flags or the environment.

    What is probably missing is added to ``notices``. Raises: ConfigError naming the flag.
    """
    pods, own_pod, term = pod_options(given), environment.get(POD_NAME, ""), _term(given)
    if term is not None:
        _refuse_shared_lease(given, own_pod)
    if pods is not None:
        picker = replace(picker, pool_name=owner_of(own_pod) or Settings().pool_name)
        if not own_pod:
            notices.append(f"POD_NAME is not set, so metrics name the pool {picker.pool_name}; have it in env")
    cluster = replace(
        picker.cluster,
        namespace=namespace_of(given, environment),
        pods=pods,
        pool=pool_options(given),
        election=term,
        own_pod=own_pod,
    )
    return replace(picker, cluster=cluster)


def _refuse_shared_lease(given: Given, own_pod: str) -> None:
    """Raise ConfigError if the Lease would have the default name, by which pickers of other pools would stand by."""
    if given.get("pool-name"):
        return
    if not given.get("endpoint-selector"):
        raise ConfigError("--ha-enable-leader-election needs --pool-name, which names the Lease of the pool's pickers")
    if not own_pod:
        raise ConfigError(
            f"--ha-enable-leader-election beside --endpoint-selector needs {POD_NAME} in env, "
            "which names the Lease after the pickers' Deployment"
        )


def _term(given: Given) -> Term | None:
    """Return how long a leader's Lease counts; None without an election. Raises: ConfigError."""
    names = {"duration_s": "lease-duration", "overdue_s": "renew-deadline", "retry_s": "retry-period"}
    stated = {field: given[flag] for field, name in names.items() if (flag := f"leader-elect-{name}") in given}
    if not given.get("ha-enable-leader-election", False):
        for field in stated:
            raise ConfigError(f"--leader-elect-{names[field]} has no meaning without --ha-enable-leader-election")
        return None
    term = replace(Term(), **stated)
    for longer, shorter in (("duration_s", "overdue_s"), ("overdue_s", "retry_s")):
        if getattr(term, longer) <= getattr(term, shorter):
            raise ConfigError(
                f"--leader-elect-{names[longer]}={getattr(term, longer):g}s must be longer than "
                f"--leader-elect-{names[shorter]}={getattr(term, shorter):g}s"
            )
    return term
