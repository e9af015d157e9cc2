"""Why the charts here render something else than upstream's: a reason for each difference, by its kind and path."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.charts.differences import Difference


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason for the differences whose kind, name and path match the expressions."""

    kind: str
    name: str
    path: str
    why: str

    def covers(self, difference: Difference) -> bool:
        """Return whether the difference has this reason."""
        return all(
            re.fullmatch(expression, text)
            for expression, text in (
                (self.kind, difference.kind),
                (self.name, difference.name),
                (self.path, difference.path),
            )
        )


_PICKER = r"spec\.template\.spec\.containers\[epp\]"
_ENVOY = r"spec\.template\.spec\.containers\[envoy-sidecar\]"
REASONS = (
    Reason(".*", ".*", r".*app\.kubernetes\.io/version", "the version of Tierwise's charts"),
    Reason(".*", ".*", r"metadata\.labels", "every object has the labels of the release"),
    Reason(
        ".*", ".*", r"metadata\.namespace|subjects.*namespace", "written out, so that `helm template` can be applied"
    ),
    Reason(
        "ClusterRole|ClusterRoleBinding", ".*-epp", "", "authentication is on by default, so its rights are rendered"
    ),
    Reason("ClusterRole", ".*-epp", r"rules\[/metrics\]", "only the reader of the metrics needs it"),
    Reason(
        "ClusterRole|ClusterRoleBinding|ServiceAccount",
        ".*-epp-metrics-reader",
        "",
        "the monitor's token is of an account that may only read the metrics",
    ),
    Reason("Secret", "inference-gateway-sa.*", "", "one fixed name: a second release in the namespace would fail"),
    Reason("Secret", ".*-epp-metrics-reader", "", "the same secret by the name of the release"),
    Reason(
        "ClusterRole.*|Role.*|Secret|ServiceAccount|PodMonitoring",
        ".*metrics-reader.*|llm-d-infpool",
        "",
        "monitoring.gke.enable is what the guide means, and upstream's chart ignores it",
    ),
    Reason("ServiceMonitor", ".*", r".*credentials\.name", "the name of that secret"),
    Reason("ConfigMap", "envoy", "", "one fixed name: a second release in the namespace would take it over"),
    Reason("ConfigMap", ".*-proxy-config", "", "Envoy's configuration, by the name of the release"),
    Reason("ConfigMap", ".*", r"data\.default-plugins\.yaml", "Tierwise's default profile, with memory tiers"),
    Reason("ConfigMap", ".*", r"data\.payload-agnostic\.yaml", "the second profile that the newer charts have"),
    Reason("Deployment", ".*", r".*igw-mode", "the label of v1.5, which v1.2 does not have yet"),
    Reason("Deployment", ".*", r"spec\.strategy.*", "a new picker is ready before the old one ends"),
    Reason("Deployment", ".*", r"spec\.template\.metadata\.annotations", "checksums: what needs a restart gets one"),
    Reason("Deployment", ".*", rf"{_PICKER}\.(image|command)", "Tierwise's picker, unless image.literal is true"),
    Reason("Deployment", ".*", rf"{_PICKER}\.imagePullPolicy", "images are pinned by their tag"),
    Reason("Deployment", ".*", rf"{_PICKER}\.args\[--v\]", "Tierwise's usual verbosity where the values name none"),
    Reason(
        "Deployment",
        ".*",
        rf"{_PICKER}\.args\[--metrics-endpoint-auth\]",
        "v1.2 turns authentication off without monitoring; here the values decide",
    ),
    Reason(
        "Deployment", ".*", rf"{_PICKER}\.args\[--grpc-max-recv-msg-size\]", "as large as the bodies that Envoy holds"
    ),
    Reason(
        "Deployment",
        ".*",
        rf"{_PICKER}\.args\[--.*-metric\]",
        "upstream's quotes become part of the name; here the profile names the metric",
    ),
    Reason("Deployment", ".*", rf"{_PICKER}\.env.*apiVersion", "the default of Kubernetes"),
    Reason("Deployment", ".*", rf"{_PICKER}\.lifecycle", "gateways learn of a pod's end before it stops"),
    Reason("Deployment", ".*", rf"{_ENVOY}\.lifecycle", "Envoy serves on while the picker beside it drains"),
    Reason("Deployment", ".*", rf"{_PICKER}\.args\[--drain-timeout\]", "as long as the Envoy beside it serves on"),
    Reason("Deployment", ".*", rf"{_PICKER}\.args\[--proxy-admin-port\]", "Envoy ends clients' connections in time"),
    Reason(
        "Deployment",
        ".*",
        rf"{_PICKER}\.livenessProbe\.grpc\.service",
        "a picker without its pool or API server is not restarted",
    ),
    Reason("Deployment", ".*", rf"{_PICKER}\.resources", "v1.2 requests nothing"),
    Reason("Deployment", ".*", rf"({_PICKER}|{_ENVOY})\.securityContext", "the restricted Pod Security Standard"),
    Reason(
        "Deployment", ".*", rf"{_PICKER}\.volumeMounts\[tmp\]|.*volumes\[tmp\]", "the root file system is read-only"
    ),
    Reason(
        "Deployment",
        ".*",
        r"spec\.template\.spec\.initContainers",
        "a bad configuration fails the rollout and not the traffic",
    ),
    Reason(
        "Deployment",
        ".*",
        r"spec\.template\.spec\.topologySpreadConstraints",
        "several pods are on several nodes where there is room",
    ),
    Reason("Deployment", ".*", rf"{_ENVOY}\.image", "the release of Envoy that the configuration is tested with"),
    Reason("Deployment", ".*", rf"{_ENVOY}\.readinessProbe.*", "the default of Kubernetes"),
    Reason(
        "Deployment", ".*", rf"{_ENVOY}\.volumeMounts.*|.*volumes\[(proxy-)?config\]", "the ConfigMap of the release"
    ),
    Reason(
        "DestinationRule",
        ".*",
        r"spec\.trafficPolicy\.connectionPool",
        "Istio's limit of 1,024 answers 503 under load; a value of the user wins",
    ),
    Reason("InferencePool", ".*", r"spec\.appProtocol", "http is the default; definitions before v1.4 lack the field"),
    Reason(
        "InferencePool",
        ".*",
        r"spec\.(endpointPickerRef|extensionRef)\.failureMode",
        "v1.2 ignores the value of v1 pools and closes v1alpha2 ones; here both are FailOpen",
    ),
    Reason("Pod", ".*-check", "", "`helm test` checks the configuration"),
    Reason("Role|RoleBinding", "llm-d-infpool-epp(-sa|-non-sa)?", "", "v1.2 has one Role; since v1.5 there are two"),
    Reason("Role", ".*-leader-election", r"rules\[.*\]", "no more rights than the election uses"),
    Reason("Role", ".*", r"rules\[inference.*\.llm-d\.ai\]", "the newer group of the same kinds"),
    Reason("Service", ".*-endpoints", "", "Envoy's way to the pods while no picker answers"),
    Reason(
        "Service", ".*", r"spec\.ports\[grpc-ext-proc\]\.appProtocol", "gateways need no other hint that it is HTTP/2"
    ),
    Reason("Service", ".*", r"spec\.ports.*targetPort", "by the name of the container's port"),
)


def reason(difference: Difference) -> Reason | None:
    """Return the first reason that covers a difference; None if none does."""
    return next((each for each in REASONS if each.covers(difference)), None)
