"""The conformance suite of the Gateway API Inference Extension, as its makers' own program, and what it reports."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.environment import ISTIO, program
from tests.cluster.gateway import istio
from tests.cluster.gateway.weighted import Share, envoy_filter

INFRASTRUCTURE, APPLICATION = "inference-conformance-infra", "inference-conformance-app-backend"
GATEWAYS = ("conformance-primary", "conformance-secondary")
TESTS = (
    "EppUnAvailableFailOpen", "GatewayDestinationEndpointServed", "GatewayFollowingEPPRouting",
    "GatewayFollowingEPPRoutingWithDataParallelism", "GatewayWeightedAcrossTwoInferencePools",
    "HTTPRouteInvalidInferencePoolRef", "HTTPRouteMultipleGatewaysDifferentPools",
    "HTTPRouteMultipleRulesDifferentPools", "InferencePoolAccepted", "InferencePoolAppProtocol",
    "InferencePoolHTTPRoutePortValidation", "InferencePoolInvalidEPPService", "InferencePoolMissingEPPRef",
    "InferencePoolResolvedRefsCondition",
)  # fmt: skip
"""All of release 1.6.0."""
OUTCOME = re.compile(r"^ {4}--- (PASS|FAIL|SKIP): TestConformance/(\w+) \(([\d.]+)s\)$", re.MULTILINE)
IMPLEMENTATION = {
    "organization": "istio", "project": "istio", "url": "https://istio.io", "version": ISTIO,
    "contact": "https://github.com/istio/istio/issues",
}  # fmt: skip
REPORT = "report.yaml"
WITHIN_S = 600.0


@dataclass(frozen=True)
class Outcome:
    """What the suite found out."""

    tests: dict[str, str]
    """``PASS``, ``FAIL`` or ``SKIP`` by test."""
    report: dict[str, Any]
    """The suite's own; empty if it wrote none."""
    log: str


def prepare(here: Cluster) -> None:
    """Make what the suite expects of a gateway's makers: both data planes, TLS to the pickers, and what Istio lacks."""
    for name in (INFRASTRUCTURE, APPLICATION):
        here.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for gateway in GATEWAYS:
        istio.data_plane(here, gateway, INFRASTRUCTURE)
    pickers = {"port": {"number": 9002}, "tls": {"mode": "SIMPLE", "insecureSkipVerify": True}}
    here.apply({
        "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
        "metadata": {"name": "pickers", "namespace": APPLICATION},
        "spec": {"host": f"*.{APPLICATION}.svc.cluster.local", "trafficPolicy": {"portLevelSettings": [pickers]}},
    })  # fmt: skip
    # Istio asks one picker for both pools of this route.
    shares = [
        Share("primary-inference-pool", "primary-endpoint-picker-svc", 70),
        Share("secondary-inference-pool", "secondary-endpoint-picker-svc", 30, fails_open=True),
    ]
    route, path = f"{APPLICATION}.httproute-weighted-two-pools", "/weighted-two-pools-test"
    here.apply(envoy_filter(GATEWAYS[0], INFRASTRUCTURE, route, path, shares))


def run(here: Cluster, folder: Path, *words: str) -> Outcome:
    """Run the suite with its own manifests, and wait for its end. Raises: TimeoutExpired, Unavailable."""
    report, log = folder / REPORT, folder / "suite.log"
    described = (f"--{name}={value}" for name, value in IMPLEMENTATION.items())
    command = [
        str(program("inference-conformance")), "-test.v", "-test.run=^TestConformance$", "--gateway-class=istio",
        f"--report-output={report}", *described, *words,
    ]  # fmt: skip
    environment = {"KUBECONFIG": str(here.kubeconfig), "HOME": str(folder), "PATH": "/usr/bin:/bin"}
    with log.open("w") as out:
        subprocess.run(command, env=environment, cwd=folder, stdout=out, stderr=out, timeout=WITHIN_S, check=False)
    written = log.read_text()
    return Outcome(
        {name: outcome for outcome, name, _ in OUTCOME.findall(written)},
        yaml.safe_load(report.read_text()) if report.is_file() else {},
        written,
    )


def told(log: str) -> Iterator[str]:
    """Yield the lines of a log of the suite that tell why something failed."""
    return (line for line in log.splitlines() if "Error" in line or "FAIL" in line)
