"""Objects that tests of the cluster apply: simulated engines, and a picker with an Envoy beside it."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

Object = dict[str, Any]
ENVOY = Path(__file__).parents[2] / "manifests/envoy/full-duplex.yaml"
ENGINES = {"app": "engines"}
MODEL = "Qwen/Qwen3-32B"
"""What the simulated engines serve."""


def engines(replicas: int, name: str = "engines", **arguments: str) -> Object:
    """Return a Deployment of simulated engines; ``arguments`` are flags of ``tierwise sim``."""
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in arguments.items()]
    container = {
        "name": "engine", "image": "example.test/tierwise-sim:1", "ports": [{"name": "http", "containerPort": 8000}],
        "args": ["--endpoints=1", "--host=0.0.0.0", "--port=8000", *flags],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"sleep": {"seconds": 3}}},  # requests that were sent here already still arrive
    }  # fmt: skip
    return deployment(name, replicas, {**ENGINES, "set": name}, {"containers": [container]})


def deployment(name: str, replicas: int, labels: dict[str, str], spec: Object) -> Object:
    """Return a Deployment whose pods have ``spec``."""
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }  # fmt: skip


def service(name: str, labels: dict[str, str], ports: dict[int, int]) -> Object:
    """Return a Service; ``ports`` is what it listens on, and the pods' ports behind."""
    listed = [{"name": f"p{port}", "port": port, "targetPort": target} for port, target in ports.items()]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": labels, "ports": listed}}  # fmt: skip


def picker(replicas: int = 1, *flags: str) -> list[Object]:
    """Return a picker that follows ``ENGINES``, with an Envoy in each pod, its rights and its Service ``picker``."""
    labels = {"app": "picker"}
    words = [
        "--endpoint-selector",
        "app=engines",
        "--endpoint-target-ports",
        "8000",
        "--metrics-endpoint-auth=false",
        *flags,
    ]
    ready, alive = (
        {"grpc": {"port": 9003, "service": name}, "periodSeconds": 1} for name in ("inference-extension", "liveness")
    )
    pod_name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    epp = {
        "name": "epp", "image": "example.test/tierwise:1", "command": ["tierwise", "serve"], "args": words,
        "env": [pod_name], "readinessProbe": ready, "livenessProbe": alive,
        "securityContext": {"runAsNonRoot": True, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    envoy = {
        "name": "envoy", "image": "envoyproxy/envoy:distroless-v1.33.2",
        "args": ["--config-path", "/etc/envoy/envoy.yaml", "--log-level", "warn", "--concurrency", "1"],
        "readinessProbe": {"tcpSocket": {"port": 8081}, "periodSeconds": 1},
        "volumeMounts": [{"name": "envoy", "mountPath": "/etc/envoy", "readOnly": True}],
    }  # fmt: skip
    spec = {
        "serviceAccountName": "picker", "containers": [epp, envoy],
        "volumes": [{"name": "envoy", "configMap": {"name": "envoy"}}, {"name": "tmp", "emptyDir": {}}],
    }  # fmt: skip
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    rbac, subject = "rbac.authorization.k8s.io", {"kind": "ServiceAccount", "name": "picker"}
    named: Object = {"metadata": {"name": "picker"}}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "envoy"},
         "data": {"envoy.yaml": ENVOY.read_text()}},
        {"apiVersion": "v1", "kind": "ServiceAccount", **named},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", **named, "rules": rules},
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", **named, "subjects": [subject],
         "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "picker"}},
        service("picker", labels, {80: 8081, 9090: 9090}),
        deployment("picker", replicas, labels, spec),
    ]  # fmt: skip


def complete(address: str, prompt: str = "once upon a time", timeout_s: float = 10.0) -> Object:
    """Return what an engine answers to a completion that is asked for at ``address``."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 4}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{address}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        answer: Object = json.load(response)
        return answer
